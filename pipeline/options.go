package pipeline

import (
	"context"
	"time"

	"assay/schemas"
)

// Options is everything a run needs that is not the plan.
type Options struct {
	Experiment schemas.Experiment
	Source     []byte // the file as written
	Plan       schemas.Plan
	Kinds      []Kind
	Store      Store
	StoreDir   string // journals and work folders lie below it
	// BaseDir is the folder that relative paths of the file are relative to.
	BaseDir string
	// ParamPaths gives the absolute path of path parameters that do not lie below BaseDir.
	ParamPaths map[string]string
	Machine    MachineFacts
	// SourceDir is the folder of the materialised source run, "" for none.
	SourceDir string
	Sources   []schemas.SourceRun
	// SourcePaths says where paths of the source run lie that are not below
	// SourceDir as named; SourceArchive is the folder of its archives, "" for none.
	SourcePaths   map[string]string
	SourceArchive string
	// SourceFindings are what was found of the source run; the report has them.
	SourceFindings []schemas.Finding

	Supervise    Supervisor
	StartService func(ctx context.Context, l ServiceLaunch) (Service, error)
	// Sweep ends processes that carry a token of an interrupted run.
	Sweep func(token string) error

	// Sealed says whether a run of that id is in the store's index.
	Sealed func(runID string) bool
	// Resume goes on with an interrupted run.
	Resume *Unsealed
	// PreflightOnly stops after the preflight stages that need nothing running,
	// and publishes nothing.
	PreflightOnly bool
	// Rehash reads every input, also those that stat shows to be unchanged since
	// their digest was last taken.
	Rehash bool
	// Parallel is how many stages run at once beside a measured one's turn; 0 means 2.
	Parallel int
	RunID    string
	Tag      string
	// Now is the wall clock.
	Now         func() time.Time
	Environment schemas.Environment
	// Events takes what happens, for people; may be nil. Calls do not overlap.
	Events func(Event)
}

// MachineFacts is what the machine file says.
type MachineFacts struct {
	Values map[string]string
	Secret func(name string) (string, error)
	// Checkpoints are folders of weights by the names of models.
	Checkpoints map[string]string
	// Facts is what is known of the machine that serves, by the names of
	// schemas.ValidatedEnvironment.
	Facts      map[string]string
	ServiceEnv map[string]map[string]string
	// Host are recorded facts of the host that serves, to be checked in place of this
	// machine; nil for this machine.
	Host *schemas.HostFacts
}

// ServiceLaunch is one start of a service.
type ServiceLaunch struct {
	Unit    string
	Service string
	Engine  string
	Config  map[string]any // resolved
	Env     map[string]string
	LogDir  string
	// WorkDir is a folder for what lasts as long as the service.
	WorkDir string
	// ModelPaths are the checkpoints of the experiment's models by name.
	ModelPaths map[string]string
	// SourceArchive is the source run's folder of archives, for a service that is
	// started with a file of that run.
	SourceArchive string
	Token         string   // marks its processes
	Secrets       []string // values that must not reach its log
}

// Service is a started or attached service.
type Service interface {
	View() ServiceView
	// Stop ends it and waits until its whole process tree is gone.
	Stop(ctx context.Context) ServiceEnd
}

// ServiceEnd says how a service ended.
type ServiceEnd struct {
	Status   string // stopped, died, killed, detached
	Error    string
	ExitCode *int
	Argv     []string
	ReadyMs  float64
	Config   *schemas.ServiceConfig
}

// Event is one thing that happened, for people.
type Event struct {
	Type  string // run, start, reuse, end, skip, service_start, service_ready, service_end, progress, finding, seal
	Node  string
	Kind  string
	Unit  string
	Text  string
	Done  int64
	Total int64
	// Nodes done of all.
	NodesDone, NodesTotal int
	Status                schemas.StageStatus
	Duration              time.Duration
	Finding               *schemas.Finding
}

// Outcome is what a run came to.
type Outcome struct {
	RunID  string
	Digest schemas.Digest // of the manifest; empty when nothing was published
	Status schemas.RunStatus
	Report schemas.Report
	// Refused is set when preflight refused the run.
	Refused  *RefusedError
	Findings []schemas.Finding
	Aborted  bool
	Reused   int
	Executed int
}
