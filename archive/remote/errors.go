package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const (
	maxErrorBody    = 64 << 10
	maxRules        = 4
	maxErrorMessage = 300 // characters
)

// Rule is what a registry says about a request that it refuses.
type Rule struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error is the answer of a registry that refuses something. It never holds
// credentials or the query of an address.
type Error struct {
	Op       string // what was wanted
	Registry string
	Status   int
	Rules    []Rule
	Hint     string // what to do about it, "" for nothing better than the rule
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: registry %s answers %d", e.Op, e.Registry, e.Status)
	if text := http.StatusText(e.Status); text != "" {
		b.WriteString(" " + text)
	}
	for _, r := range e.Rules {
		b.WriteString(", " + r.Code)
		if r.Message != "" && r.Message != r.Code {
			b.WriteString(" (" + r.Message + ")")
		}
	}
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	return b.String()
}

// Is makes a 404 an fs.ErrNotExist.
func (e *Error) Is(target error) bool {
	return target == fs.ErrNotExist && e.Status == http.StatusNotFound
}

// has says whether the registry gave one of these codes.
func (e *Error) has(codes ...string) bool {
	for _, r := range e.Rules {
		for _, c := range codes {
			if r.Code == c {
				return true
			}
		}
	}
	return false
}

func status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// answerError makes an Error of an answer and ends it.
func answerError(op, registry string, res *http.Response, secret []string) *Error {
	e := &Error{Op: op, Registry: registry, Status: res.StatusCode}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what came is enough
	_ = res.Body.Close()
	var doc struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return e
	}
	for _, r := range doc.Errors[:min(len(doc.Errors), maxRules)] {
		e.Rules = append(e.Rules, Rule{clean(r.Code, secret), clean(r.Message, secret)})
	}
	return e
}

// noTLS is how net/http says so.
const noTLS = "server gave HTTP response to HTTPS client"

// transportError says what is wrong in the error of a request that got no
// answer, without the address, whose query may hold a token.
func transportError(op, registry string, err error, secret []string) error {
	var refused *transport.Error // of the token service
	if errors.As(err, &refused) {
		e := &Error{Op: op + ": authentication", Registry: registry, Status: refused.StatusCode}
		for _, d := range refused.Errors[:min(len(refused.Errors), maxRules)] {
			e.Rules = append(e.Rules, Rule{clean(string(d.Code), secret), clean(d.Message, secret)})
		}
		return e
	}
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	text := err.Error()
	if before, _, found := strings.Cut(text, "no token in bearer response"); found {
		// What the token service answered instead may be a login of another sort.
		text = before + "the token service answered without a token"
	}
	text = clean(text, secret)
	if strings.Contains(text, noTLS) || errors.Is(err, errRefusedHTTP) {
		text = "it does not speak TLS: plain HTTP to another machine must be allowed with --plain-http"
	}
	return &lostError{op: op, registry: registry, text: text, err: err}
}

// lostError is a request without an answer.
type lostError struct {
	op, registry, text string
	err                error
}

func (e *lostError) Error() string {
	return e.op + ": registry " + e.registry + ": " + e.text
}
func (e *lostError) Unwrap() error { return e.err }

var (
	tokenText = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}|\beyJ[A-Za-z0-9_-]{8,}[A-Za-z0-9._-]*`)
	queryText = regexp.MustCompile(`(https?://[^\s"'?]*)\?[^\s"']*`)
	userText  = regexp.MustCompile(`(https?://)[^\s/"'@]+@`)
)

// clean makes text of a stranger fit for a message: bounded, on one line,
// without secrets.
func clean(text string, secret []string) string {
	for _, s := range secret {
		if len(s) > 0 {
			text = strings.ReplaceAll(text, s, "[hidden]")
		}
	}
	text = tokenText.ReplaceAllString(text, "[hidden]")
	text = queryText.ReplaceAllString(text, "$1")
	text = userText.ReplaceAllString(text, "$1")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > maxErrorMessage {
		text = string(r[:maxErrorMessage]) + "..."
	}
	return text
}
