package schemas

// Choices of a source that can be told to be there.
const (
	ObserveAuto = "auto"
	ObserveOn   = "on"
	ObserveOff  = "off"
)

var observeChoice = []string{ObserveAuto, ObserveOn, ObserveOff}

// ObserveField is shared by every kind that looks at the service meanwhile.
func ObserveField() Field {
	return Field{Name: "observe", Type: TypeTable, Doc: "what is looked at on the service and its host meanwhile; without this table: host and metrics as auto says, and Aegaeon's snapshot and events", Fields: []Field{
		{Name: "metrics", Type: TypeString, Default: ObserveAuto, Enum: observeChoice, Doc: "Prometheus metrics of the service; auto: if it answers with some before the first request"},
		{Name: "metrics_path", Type: TypeString, Default: "/metrics", Doc: "their path"},
		{Name: "metrics_interval", Type: TypeDuration, Default: "1s", Doc: "time between two looks at them, 100ms or more"},
		{Name: "snapshot", Type: TypeString, Default: ObserveAuto, Enum: observeChoice, Doc: "JSON state of the service before and after; auto: of engine aegaeon"},
		{Name: "snapshot_path", Type: TypeString, Default: "/v1/aegaeon/runtime", Doc: "its path"},
		{Name: "events", Type: TypeString, Default: ObserveAuto, Enum: observeChoice, Doc: "server-sent events of the service, from before the first request on; auto: of engine aegaeon"},
		{Name: "events_path", Type: TypeString, Default: "/v1/aegaeon/events", Doc: "their path"},
		{Name: "gpu", Type: TypeString, Default: ObserveOff, Enum: []string{ObserveOff, "nvidia-smi", "service"}, Doc: "power and use of GPUs: by nvidia-smi on this host, or as the service tells at gpu_path"},
		{Name: "gpu_path", Type: TypeString, Default: "/v1/aegaeon/gpu-power", Doc: "path of the service's own figures"},
		{Name: "gpu_interval", Type: TypeDuration, Default: "1s", Doc: "time between two looks at GPUs, 100ms or more"},
		{Name: "host", Type: TypeString, Default: ObserveAuto, Enum: observeChoice, Doc: "processor, memory, threads and context switches of the service's processes, and of this host; auto: if assay started the service"},
		{Name: "host_interval", Type: TypeDuration, Default: "1s", Doc: "time between two looks at processes, 100ms or more"},
		{Name: "profile", Type: TypeBool, Default: false, Doc: "POST /start_profile before the first request and /stop_profile after the last answer; the numbers are diagnostic then"},
		{Name: "profile_timeout", Type: TypeDuration, Default: "5m0s", Doc: "time either may take"},
		{Name: "reset", Type: TypeTableList, Doc: "requests that empty caches, sent in this order before everything else of the stage", Fields: []Field{
			{Name: "path", Type: TypeString, Required: true, Doc: "path and query, like /reset_prefix_cache"},
			{Name: "method", Type: TypeString, Default: "POST", Enum: []string{"POST", "GET", "PUT", "DELETE"}, Doc: "HTTP method"},
			{Name: "status", Type: TypeInt, Default: 200.0, Min: bound(100), Max: bound(599), Doc: "status that says it was done"},
			{Name: "on_fail", Type: TypeString, Default: "fail", Enum: []string{"fail", "mark"}, Doc: "fail: the stage fails; mark: it goes on, with a finding"},
		}},
		{Name: "timeout", Type: TypeDuration, Default: "5s", Doc: "time one look may take"},
		{Name: "require", Type: TypeStringList, Enum: []string{"metrics", "snapshot", "events", "gpu", "host"}, Doc: "sources without which, before and after, the stage fails"},
	}}
}
