package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"assay/internal/observe"
)

// Paths of Aegaeon's API.
const (
	runtimePath  = "/v1/aegaeon/runtime"
	deployPath   = "/v1/models/deploy"
	undeployPath = "/v1/models/undeploy"
	modelsPath   = "/v1/models"
)

const (
	maxAnswerBytes = 64 << 20
	maxErrorText   = 2000
	dialTimeout    = 10 * time.Second
	// lookTimeout bounds one look at the service.
	lookTimeout = 30 * time.Second
)

// talk speaks to the service about models. It uses no proxy and follows no
// redirect. Its errors name no address: they are archived.
type talk struct {
	base    string
	headers http.Header // sent with everything
	client  *http.Client
	hide    func(string) string
	// paths stand for themselves in what is kept: folders of the service's machine.
	paths []string
	keep  func(kept) error
	began time.Time
}

// kept is a line of the answers output.
type kept struct {
	AtMs   float64 `json:"at_ms"` // since the stage began, when the answer was there
	Call   string  `json:"call"`
	Model  string  `json:"model,omitempty"`
	Status int     `json:"status,omitempty"`
	Error  string  `json:"error,omitempty"`
	// Body is the answer: JSON as it came, else text.
	Body json.RawMessage `json:"body,omitempty"`
}

func newTalk(base string, headers http.Header, hide func(string) string, keep func(kept) error) *talk {
	if hide == nil {
		hide = func(s string) string { return s }
	}
	return &talk{base: strings.TrimRight(base, "/"), headers: headers, hide: hide, keep: keep, began: time.Now(), client: &http.Client{
		Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// clean takes secrets and folders of the service's machine out of a text.
func (t *talk) clean(s string) string {
	for _, p := range t.paths {
		s = strings.ReplaceAll(s, p, "${path}")
	}
	return t.hide(s)
}

// short is clean, bounded and on one line.
func (t *talk) short(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(t.clean(s)), " "), "\uFFFD")
	if len(s) > maxErrorText {
		s = strings.ToValidUTF8(s[:maxErrorText], "") + "..."
	}
	return s
}

// call sends a request. Any status is an answer.
func (t *talk) call(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, t.base+path, in)
	if err != nil {
		return 0, nil, errors.New("the service has no proper URL")
	}
	for name, values := range t.headers {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "assay")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, nil, t.plain(ctx, method, path, err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return resp.StatusCode, nil, t.plain(ctx, method, path, err)
	}
	if len(answer) > maxAnswerBytes {
		return resp.StatusCode, nil, fmt.Errorf("%s %s: the answer is larger than %d bytes", method, path, maxAnswerBytes)
	}
	return resp.StatusCode, answer, nil
}

func (t *talk) plain(ctx context.Context, method, path string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s %s: %w", method, path, err)
}

// archive keeps an answer.
func (t *talk) archive(call, model string, status int, body []byte, failed error) error {
	k := kept{AtMs: ms(time.Since(t.began)), Call: call, Model: model, Status: status}
	if failed != nil {
		k.Error = t.short(failed.Error())
	}
	if len(body) > 0 {
		text := t.clean(string(body))
		if !json.Valid([]byte(text)) {
			b, err := json.Marshal(strings.ToValidUTF8(text, "\uFFFD"))
			if err != nil {
				return err
			}
			text = string(b)
		}
		k.Body = json.RawMessage(text)
	}
	return t.keep(k)
}

// look takes a snapshot; told is false where the service has none.
func (t *talk) look(ctx context.Context, name string) (s observe.Runtime, told bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	status, body, err := t.call(ctx, http.MethodGet, runtimePath, nil)
	if name != "" {
		if err := t.archive(name, "", status, body, err); err != nil {
			return s, false, err
		}
	}
	switch {
	case err != nil:
		return s, false, err
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented:
		return s, false, nil
	case status != http.StatusOK:
		return s, false, fmt.Errorf("GET %s: status %d: %s", runtimePath, status, t.short(refusal(body)))
	}
	s, err = observe.ParseRuntime(body)
	return s, err == nil, err
}

// listed asks which models the service lists.
func (t *talk) listed(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	status, body, err := t.call(ctx, http.MethodGet, modelsPath, nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d: %s", modelsPath, status, t.short(refusal(body)))
	}
	var doc struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("GET %s: not a list of models: %w", modelsPath, err)
	}
	var out []string
	for _, m := range doc.Data {
		out = append(out, m.ID)
	}
	return out, nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// outcomeOf is how a call ended, for a message.
func outcomeOf(status int, text string) string {
	if status == 0 {
		return text
	}
	return fmt.Sprintf("status %d: %s", status, text)
}
