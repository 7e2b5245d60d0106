package supervise

// wireSpec is what the supervisor reads from its first pipe. It travels there
// and not in arguments because Env may hold secrets.
type wireSpec struct {
	Path            string   `json:"path"`
	Argv            []string `json:"argv"`
	Dir             string   `json:"dir"`
	Env             []string `json:"env"`
	LeftoverGraceNs int64    `json:"leftover_grace_ns"`
	KillLimitNs     int64    `json:"kill_limit_ns"`
}

// wireCommand is one line from the parent on the life pipe. The end of that pipe
// means that the parent is gone.
type wireCommand struct {
	Signal  int   `json:"signal"` // to the root; SIGKILL to the whole tree
	GraceNs int64 `json:"grace_ns"`
}

// wireStatus is one line from the supervisor: first how the start went, then how
// the tree ended.
type wireStatus struct {
	Started   int    `json:"started,omitempty"` // process id of the root
	Errno     int    `json:"errno,omitempty"`   // why it could not start
	Error     string `json:"error,omitempty"`
	Ended     bool   `json:"ended,omitempty"`
	Code      int    `json:"code,omitempty"`
	Signal    int    `json:"signal,omitempty"`
	Killed    bool   `json:"killed,omitempty"`
	Leftover  int    `json:"leftover,omitempty"`
	Survivors []int  `json:"survivors,omitempty"` // processes that could not be ended
}

// File descriptors the supervisor is started with.
const (
	fdSpec   = 3
	fdLife   = 4
	fdStatus = 5
)
