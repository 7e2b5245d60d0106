package engines

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"

	"assay/internal/engines/emulated"
	"assay/schemas"
)

// Names of the engines.
const (
	Emulated = emulated.Engine
	OpenAI   = "openai"
	Aegaeon  = "aegaeon"
	PyPTO    = "pypto"
)

// Files of a started service in its LogDir.
const (
	ServiceLog  = "service.log"
	EmissionLog = "emissions.jsonl" // emulated only
	ConfigFile  = "emulated.json"   // emulated only
)

// Launch is a service to start or to attach to.
type Launch struct {
	// Service is its name in the experiment, Unit the lifetime it is started for;
	// both only appear in messages.
	Service string
	Unit    string
	Engine  string
	// Config holds the service's keys with every ${...} resolved. Missing keys
	// take their defaults.
	Config map[string]any
	// Env is added to the process's environment, after the allowed variables of
	// this process and the configuration's.
	Env []string
	// LogDir is an existing folder for the files named above.
	LogDir string
	// WorkDir is a folder for what lasts as long as the process; "" for none.
	WorkDir string
	// ModelPaths are folders of checkpoints by the names of models, which replace
	// those of aegaeon_config.
	ModelPaths map[string]string
	// SourceArchive is the folder of archives that belongs to aegaeon_config, when
	// that is of a source run.
	SourceArchive string
	// SelfExe is this program's executable, by default the running one; the
	// emulated engine is started from it.
	SelfExe string
	// Token marks the processes for supervise.Sweep. It may be "".
	Token string
	// Secrets are values that must not appear in logs and errors.
	Secrets []string
}

func (l Launch) name() string {
	if l.Unit != "" {
		return fmt.Sprintf("service %s (%s)", l.Service, l.Unit)
	}
	return "service " + l.Service
}

// settings are the parsed keys that concern the process.
type settings struct {
	Command      []string          `json:"command"`
	URL          string            `json:"url"`
	Env          map[string]string `json:"env"`
	Cwd          string            `json:"cwd"`
	Port         int               `json:"port"`
	ReadyPath    string            `json:"ready_path"`
	ReadyLog     string            `json:"ready_log"`
	ReadyTimeout schemas.Duration  `json:"ready_timeout"`
	StopSignal   string            `json:"stop_signal"`
	StopGrace    schemas.Duration  `json:"stop_grace"`

	AegaeonConfig string `json:"aegaeon_config"`
	GraphMode     string `json:"graph_mode"`
	GraphArchive  string `json:"graph_archive"`

	readyLog *regexp.Regexp
	signal   syscall.Signal
}

var stopSignals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT}

// parseSettings reads the keys of l and fills in defaults.
func parseSettings(l Launch) (settings, error) {
	var s settings
	keys := map[string]any{}
	fields, ok := engineFields(l.Engine)
	if !ok {
		return s, fmt.Errorf("engine %q: there are %s, %s, %s and %s", l.Engine, Emulated, OpenAI, Aegaeon, PyPTO)
	}
	for _, f := range fields {
		if f.Default != nil {
			keys[f.Name] = f.Default
		}
		if v, ok := l.Config[f.Name]; ok && v != nil {
			keys[f.Name] = v
		}
	}
	b, err := json.Marshal(keys)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, err
	}
	return s, s.check(l.Engine)
}

func engineFields(engine string) ([]schemas.Field, bool) {
	for _, e := range schemas.Engines() {
		if e.Name == engine {
			return e.Fields, true
		}
	}
	return nil, false
}

func (s *settings) check(engine string) error {
	if s.StopSignal == "" {
		s.StopSignal = "TERM"
	}
	var ok bool
	if s.signal, ok = stopSignals[s.StopSignal]; !ok {
		return fmt.Errorf("stop_signal %q: want TERM, INT or QUIT", s.StopSignal)
	}
	if s.Port < 0 || s.Port > 65535 {
		return fmt.Errorf("port %d: want 1 to 65535", s.Port)
	}
	if s.ReadyLog != "" {
		re, err := regexp.Compile(s.ReadyLog)
		if err != nil {
			return fmt.Errorf("ready_log: %w", err)
		}
		s.readyLog = re
	}
	if s.ReadyPath == "" && s.ReadyLog == "" {
		s.ReadyPath = "/v1/models"
		if engine == Emulated || engine == PyPTO {
			s.ReadyPath = "/health"
		}
	}
	if s.ReadyPath != "" && !strings.HasPrefix(s.ReadyPath, "/") {
		return fmt.Errorf("ready_path %q: must begin with /", s.ReadyPath)
	}
	switch {
	case engine == Emulated:
		return nil
	case s.URL == "" && len(s.Command) == 0:
		return fmt.Errorf("neither command nor url: give one of them")
	case s.URL != "" && len(s.Command) > 0:
		return fmt.Errorf("command and url: give one of them")
	case s.URL != "" && s.ReadyLog != "":
		return fmt.Errorf("ready_log: a service that is attached to has no log here; use ready_path")
	case s.URL != "":
		return s.checkURL()
	}
	return nil
}

func (s *settings) checkURL() error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("url: want http://HOST:PORT")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("url: want http://HOST:PORT without user, query and fragment")
	}
	s.URL = strings.TrimRight(u.String(), "/")
	return nil
}

func (s settings) readyTimeout() time.Duration { return s.ReadyTimeout.Std() }
