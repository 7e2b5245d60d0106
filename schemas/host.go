package schemas

import "time"

// HostFactsV1 is the schema of recorded facts of a host.
const HostFactsV1 = "assay/host-facts/v1"

// HostFacts is what is known of a host that serves, recorded there and judged
// anywhere. What is null or missing is not known; Unknown says why.
type HostFacts struct {
	Schema     string    `json:"schema" jsonschema_extras:"const=assay/host-facts/v1"`
	RecordedAt time.Time `json:"recorded_at"`
	Host       string    `json:"host"`
	Kernel     string    `json:"kernel,omitempty"`
	// Distribution and Version are ID and VERSION_ID of os-release.
	Distribution string `json:"distribution,omitempty"`
	Version      string `json:"distribution_version,omitempty"`
	Glibc        string `json:"glibc,omitempty"`
	CPUs         int    `json:"cpus"`
	Governor     string `json:"cpu_governor,omitempty"`

	MemAvailableBytes *int64 `json:"mem_available_bytes,omitempty"`
	// MemlockBytes and OpenFiles are soft limits, -1 for none.
	MemlockBytes *int64 `json:"memlock_bytes,omitempty"`
	OpenFiles    *int64 `json:"open_files,omitempty"`
	// PortFirst and PortLast are the range of ports that connections are made from.
	PortFirst int `json:"port_first,omitempty"`
	PortLast  int `json:"port_last,omitempty"`
	// Listening are TCP ports that are in use.
	Listening    []int      `json:"listening,omitempty"`
	ShmDir       string     `json:"shm_dir,omitempty"`
	ShmFreeBytes *int64     `json:"shm_free_bytes,omitempty"`
	ShmFiles     []HostFile `json:"shm_files,omitempty"` // of earlier services
	// DiskDir is a folder, DiskFreeBytes the room of its file system.
	DiskDir       string `json:"disk_dir,omitempty"`
	DiskFreeBytes *int64 `json:"disk_free_bytes,omitempty"`
	ClockSynced   *bool  `json:"clock_synced,omitempty"`

	DriverVersion string    `json:"driver_version,omitempty"`
	GPUs          []HostGPU `json:"gpus,omitempty"`
	NPUs          []HostNPU `json:"npus,omitempty"`

	// Python is the version, Packages name to version, by the metadata of what is
	// installed in Prefix.
	Prefix   string            `json:"python_prefix,omitempty"`
	Python   string            `json:"python,omitempty"`
	Packages map[string]string `json:"packages,omitempty"`
	// Extensions are compiled modules, by the name that they are imported as.
	Extensions map[string]HostLibrary `json:"extensions,omitempty"`
	// Toolkit is the version of the CUDA toolkit.
	Toolkit string `json:"cuda_toolkit,omitempty"`
	// Hook is the library that AEGAEON_FOUNDRY_HOOK_PATH names, CUDALibrary the
	// driver's library that would be loaded.
	Hook        *HostLibrary `json:"hook,omitempty"`
	CUDALibrary *HostLibrary `json:"cuda_library,omitempty"`
	// RayAddress is the cluster's, RayAnswers whether something accepts there.
	RayAddress string `json:"ray_address,omitempty"`
	RayAnswers *bool  `json:"ray_answers,omitempty"`
	// Env holds variables that change results, of a closed list of names.
	Env     map[string]string `json:"env,omitempty"`
	Folders []HostFolder      `json:"folders,omitempty"` // of models
	// Unknown says why something could not be learnt, by its name here.
	Unknown map[string]string `json:"unknown,omitempty"`
}

// HostFile is a file by name and size.
type HostFile struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// HostGPU is a GPU as its vendor's tool lists it.
type HostGPU struct {
	Index       int    `json:"index"`
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memory_bytes"`
	UsedBytes   int64  `json:"used_bytes"`
	// Capability is the compute capability: 8.0.
	Capability string `json:"compute_capability,omitempty"`
	ClockMHz   int    `json:"sm_clock_mhz,omitempty"`
	MaxMHz     int    `json:"max_sm_clock_mhz,omitempty"`
}

// HostNPU is an NPU's chip as its vendor's tool lists it.
type HostNPU struct {
	Index int    `json:"index"`
	Name  string `json:"name"`
}

// HostLibrary is a shared library as its file tells.
type HostLibrary struct {
	Path string `json:"path"`
	// Problem says why it is no library that can be loaded, empty for one that can.
	Problem string `json:"problem,omitempty"`
	// Missing are the libraries that it needs and that are in no known folder.
	Missing []string `json:"missing,omitempty"`
	// Older says that it was made before the torch that is installed.
	Older bool `json:"older_than_torch,omitempty"`
	// FuncName says whether it defines cuFuncGetName.
	FuncName *bool `json:"defines_cu_func_get_name,omitempty"`
}

// HostFolder is a folder of weights: names and sizes alone.
type HostFolder struct {
	Model string     `json:"model"`
	Path  string     `json:"path"`
	Files []HostFile `json:"files,omitempty"`
	// Fingerprint is that of the headers of its weights.
	Fingerprint Digest `json:"fingerprint,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Problem     string `json:"problem,omitempty"`
}
