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
	Detail  string `json:"detail,omitempty"`
}

// Error is the answer of a registry that refuses something. It never holds
// credentials or the query of an address.
type Error struct {
	Op       string // what was wanted
	Registry string
	By       string // the host that answers, where a redirect or the registry's token service leads; "" for the registry
	Status   int
	Rules    []Rule
	Hint     string // what to do about it, "" for nothing better than the rule

	login bool // the host it leads to was given the login
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: registry %s", e.Op, e.Registry)
	if e.By != "" {
		fmt.Fprintf(&b, " leads to %s, which", e.By)
	}
	fmt.Fprintf(&b, " answers %d", e.Status)
	if text := http.StatusText(e.Status); text != "" {
		b.WriteString(" " + text)
	}
	for _, r := range e.Rules {
		b.WriteString(", " + r.Code)
		if r.Message != "" && r.Message != r.Code {
			b.WriteString(" (" + r.Message + ")")
		}
		if r.Detail != "" && r.Detail != r.Message {
			b.WriteString(": " + r.Detail)
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
	e := &Error{Op: op, Registry: registry, By: elsewhere(res.Request.URL.Host, registry), Status: res.StatusCode}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what came is enough
	_ = res.Body.Close()
	if isPage(res.Header) && res.StatusCode < http.StatusInternalServerError && res.StatusCode != http.StatusRequestEntityTooLarge {
		e.Hint = "with a web page: " + noRegistryHint
	}
	var doc struct {
		Errors []struct {
			Code    string          `json:"code"`
			Message string          `json:"message"`
			Detail  json.RawMessage `json:"detail"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return e
	}
	for _, r := range doc.Errors[:min(len(doc.Errors), maxRules)] {
		e.Rules = append(e.Rules, Rule{clean(r.Code, secret), clean(r.Message, secret), clean(detail(r.Detail), secret)})
	}
	return e
}

// detail is what a registry adds to a rule: text, or JSON of any form.
func detail(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	switch text = string(raw); text {
	case "null", "{}", "[]":
		return ""
	}
	return text
}

// elsewhere is host unless it is the registry itself.
func elsewhere(host, registry string) string {
	if host == registry {
		return ""
	}
	return clean(host, nil)
}

// isPage says that an answer is a web page, which a registry never sends.
func isPage(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "text/html")
}

const noRegistryHint = "this does not look like a registry (captive portal, proxy?): look at the address, and open it in a browser"

// noRegistry is a good answer that no registry gives.
func (c *client) noRegistry(op string, h http.Header, why error) error {
	text := ""
	if why != nil {
		text = " and " + clean(why.Error(), nil)
	}
	return fmt.Errorf("%s: registry %s answers with content type %q%s: %s", op, c.repo.RegistryStr(), clean(h.Get("Content-Type"), nil), text, noRegistryHint)
}

// noTLS is how net/http says so.
const noTLS = "server gave HTTP response to HTTPS client"

// transportError says what is wrong in the error of a request that got no
// answer, without the address, whose query may hold a token.
func transportError(op, registry string, err error, secret []string) error {
	var refused *transport.Error // of the token service
	if errors.As(err, &refused) {
		e := &Error{Op: op + ": authentication", Registry: registry, Status: refused.StatusCode, login: true}
		if refused.Request != nil {
			e.By = elsewhere(refused.Request.URL.Host, registry)
		}
		for _, d := range refused.Errors[:min(len(refused.Errors), maxRules)] {
			e.Rules = append(e.Rules, Rule{Code: clean(string(d.Code), secret), Message: clean(d.Message, secret)})
		}
		return e
	}
	by := ""
	for at := new(url.Error); errors.As(err, &at); err = at.Err {
		if u, perr := url.Parse(at.URL); perr == nil && u.Host != "" {
			by = elsewhere(u.Host, registry)
		}
	}
	var clear *plainError
	if errors.As(err, &clear) {
		by = elsewhere(clear.host, registry)
	}
	return &lostError{op: op, registry: registry, text: lostText(err, by, secret), err: err}
}

// lostText is what is wrong, and what to do about it. by is the host that did not
// answer, "" for the registry.
func lostText(err error, by string, secret []string) string {
	text := err.Error()
	switch {
	case errors.Is(err, errRefusedHTTP) && by != "":
		return "it leads to http://" + by + ": plain HTTP to another machine is refused, also where a redirect or a token service leads; --plain-http allows it for the host of the reference only"
	case strings.Contains(text, noTLS) && by != "":
		return "it leads to https://" + by + ", which does not speak TLS"
	case strings.Contains(text, noTLS), errors.Is(err, errRefusedHTTP):
		return "it does not speak TLS: plain HTTP to another machine must be allowed with --plain-http"
	}
	if before, _, found := strings.Cut(text, "no token in bearer response"); found {
		// What the token service answered instead may be a login of another sort.
		text = before + "the token service answered without a token"
	}
	if by != "" {
		text = "it leads to " + by + ": " + text
	}
	text = clean(text, secret)
	if do := badCertificate(err); do != "" {
		text += ": " + do
	}
	return text
}

// explain says what can be done about some answers.
func explain(err error, cred credential) error {
	var e *Error
	if !errors.As(err, &e) || e.Hint != "" {
		return err
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Hint = e.loginHint(cred)
	case http.StatusRequestEntityTooLarge:
		if !strings.HasPrefix(e.Op, "push manifest") {
			e.Hint = fmt.Sprintf("it, or a proxy before it, takes no body as long as that (pieces have up to %d MiB): whoever runs it must allow longer ones", chunkBytes>>20)
		}
	case http.StatusMethodNotAllowed:
		if strings.HasPrefix(e.Op, "push blob") {
			e.Hint = "it takes no pushes: it may be a mirror that is only read, or no registry"
		}
	}
	return err
}

// loginHint is about a login that was refused, or is missing.
func (e *Error) loginHint(cred credential) string {
	switch {
	case e.By != "" && !e.login:
		return "no login goes to a host that a redirect leads to, so this is none of yours: what the registry gave as the address may have run out, or it is set up wrongly"
	case cred.source == "":
		return "no credentials were found: log in with `docker login` or `podman login`"
	case e.Status == http.StatusUnauthorized:
		return "the login from " + cred.source + " was refused: renew it with " + cred.renew
	}
	return "the credentials from " + cred.source + " were used: they are not allowed to do this"
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
	ansiText  = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")
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
	text = ansiText.ReplaceAllString(text, "")
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
