package supervise

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The arguments with which this program's executable is a supervisor.
const (
	WorkerCommand = "worker"
	WorkerName    = "supervise"
)

// MarkerEnv is the variable every process of a supervised tree carries: a list
// of tokens separated by colons, outermost first.
const MarkerEnv = "ASSAY_SUPERVISED"

const (
	// DefaultGrace is the time between the signal to stop and the kill.
	DefaultGrace = 10 * time.Second
	// DefaultLeftoverGrace is the time that processes have which the root left behind.
	DefaultLeftoverGrace = 2 * time.Second
	// killLimit bounds the wait for processes that do not end although killed.
	killLimit = 60 * time.Second
	// drainLimit bounds the wait for output once the tree has ended.
	drainLimit = 30 * time.Second
)

// Spec is a child process to start.
type Spec struct {
	// Argv is the program and its arguments. A name without a slash is looked up
	// in the PATH of Env, or of this process when Env has none; a relative path
	// counts from Dir.
	Argv []string
	// Path is the file to execute instead of Argv[0]; "" means Argv[0].
	Path string
	Dir  string
	// Env is the whole environment of the child, MarkerEnv apart.
	Env []string
	// Stdout and Stderr take the tree's output; nil discards it. An *os.File is
	// handed to the child, anything else is fed from a pipe. Equal writers get
	// one pipe.
	Stdout io.Writer
	Stderr io.Writer
	// Token is put in MarkerEnv beside a token of the process's own, so that
	// Sweep(Token) finds everything started with it. It may be "".
	Token string
	// Grace is how long Run lets the root stop after ctx has ended.
	Grace time.Duration
	// LeftoverGrace is how long processes may stay that the root left behind.
	LeftoverGrace time.Duration
	// SelfExe is this program's executable, by default the running one.
	SelfExe string
}

// State is how a process tree ended.
type State struct {
	// Code is the root's exit code, -1 when a signal ended it.
	Code int
	// Signal is what ended the root, 0 when it exited.
	Signal syscall.Signal
	// Killed says that the supervisor had to kill some process of the tree.
	Killed bool
	// Leftover counts the processes that outlived the root.
	Leftover int
}

// SignalError says that a signal ended the root of the tree.
type SignalError struct {
	Program string
	Signal  syscall.Signal
}

func (e *SignalError) Error() string {
	return fmt.Sprintf("%s: ended by signal %d (%s)", e.Program, int(e.Signal), e.Signal)
}

// normalize checks s and fills in what has a default.
func (s *Spec) normalize() error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return errors.New("supervise: no program to start")
	}
	for _, a := range s.Argv {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("supervise %s: an argument holds a NUL byte", s.Argv[0])
		}
	}
	if s.Token != "" && !validToken(s.Token) {
		return fmt.Errorf("supervise %s: token %q: want 8 to 128 letters, digits, '.', '_' or '-'", s.Argv[0], s.Token)
	}
	if s.Path == "" {
		s.Path = s.Argv[0]
	}
	path, err := findProgram(s.Path, s.Env)
	if err != nil {
		return fmt.Errorf("supervise: %w", err)
	}
	s.Path = path
	if s.Grace <= 0 {
		s.Grace = DefaultGrace
	}
	if s.LeftoverGrace <= 0 {
		s.LeftoverGrace = DefaultLeftoverGrace
	}
	return nil
}

// findProgram resolves a name without a slash. Relative folders in PATH are
// passed over: what they hold depends on where this process stands.
func findProgram(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, ok := lookupEnv(env, "PATH")
	if !ok {
		path = os.Getenv("PATH")
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("program %q is not in PATH (%s): install it or give its path: %w", name, path, fs.ErrNotExist)
}

// lookupEnv returns the last value of name, as a child would see it.
func lookupEnv(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// marked returns env with the marker: tokens that this process itself carries,
// then token, then own.
func marked(env []string, token, own string) []string {
	var tokens []string
	for _, t := range []string{os.Getenv(MarkerEnv), token, own} {
		if t != "" {
			tokens = append(tokens, t)
		}
	}
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, MarkerEnv+"=") {
			out = append(out, kv)
		}
	}
	return append(out, MarkerEnv+"="+strings.Join(tokens, ":"))
}

// NewToken returns a fresh token for Spec.Token and Sweep.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func validToken(t string) bool {
	if len(t) < 8 || len(t) > 128 {
		return false
	}
	for _, c := range t {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// IsWorker reports whether args (without the program's name) ask for a
// supervisor; then the process has to end with the result of Main.
func IsWorker(args []string) bool {
	return len(args) >= 2 && args[0] == WorkerCommand && args[1] == WorkerName
}
