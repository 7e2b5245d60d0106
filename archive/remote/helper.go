package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/docker/cli/cli/config/types"
)

// A credential helper is a program, docker-credential-NAME, that is asked over its
// standard input and answers JSON. What it writes may hold a secret, also when it
// fails: none of it gets into a message.

const (
	helperTime    = 30 * time.Second
	helperGrace   = time.Second // for what it left behind to let go of its output
	maxHelperText = 1 << 20
	// What helpers answer, by convention, when they have no login.
	helperNone = "credentials not found in native keychain"
	// A user of this name has a token of the registry's token service as password.
	tokenUser = "<token>"
)

// askHelper asks a helper for the login for key; none is an empty one. It ends, with
// all that it started, when ctx does and after limit.
func askHelper(ctx context.Context, name, key string, limit time.Duration) (types.AuthConfig, error) {
	program := "docker-credential-" + name
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out := &limitedText{left: maxHelperText, full: cancel}
	cmd := exec.CommandContext(short, program, "get")
	cmd.Stdin, cmd.Stdout, cmd.WaitDelay = strings.NewReader(key), out, helperGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return types.AuthConfig{}, context.Cause(ctx)
	case out.left < 0:
		return types.AuthConfig{}, fmt.Errorf("%s answers more than %d bytes, which is no login", program, maxHelperText)
	case short.Err() != nil:
		return types.AuthConfig{}, fmt.Errorf("%s did not answer within %s and was ended: it may wait for a keyring to be unlocked", program, limit)
	case errors.Is(err, exec.ErrNotFound):
		return types.AuthConfig{}, fmt.Errorf("%s is not in PATH: install it, or log in again without it", program)
	case err != nil && strings.TrimSpace(out.text.String()) == helperNone:
		return types.AuthConfig{}, nil
	case err != nil:
		return types.AuthConfig{}, fmt.Errorf("%s failed (%s): try `echo %s | %s get` to see why", program, howEnded(err), key, program)
	}
	return parseHelper(program, out.text.Bytes())
}

// howEnded is an exit status, or why there is none; no output is in it.
func howEnded(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.String()
	}
	return clean(err.Error(), nil)
}

func parseHelper(program string, text []byte) (types.AuthConfig, error) {
	var doc struct{ Username, Secret string }
	if json.Unmarshal(text, &doc) != nil {
		return types.AuthConfig{}, fmt.Errorf("%s answers what is no login", program)
	}
	if doc.Username == tokenUser {
		return types.AuthConfig{IdentityToken: doc.Secret}, nil
	}
	return types.AuthConfig{Username: doc.Username, Password: doc.Secret}, nil
}

// limitedText keeps what is written, and says when it is too much.
type limitedText struct {
	text bytes.Buffer
	left int
	full func()
}

func (l *limitedText) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		l.full()
		return 0, io.ErrShortWrite
	}
	return l.text.Write(b)
}
