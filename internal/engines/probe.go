package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"assay/internal/engines/emulated"
	"assay/internal/redact"
	"assay/schemas"
)

const (
	probeTimeout  = 5 * time.Second
	probeBytes    = 4 << 20
	maxModelCount = 100_000
)

// prober is what asks the service of l at base about itself.
func (l Launch) prober(base string) *prober {
	p := newProber(base)
	p.headers, p.hide = schemas.AskingOf(l.Config).Key.Header(), l.hide
	return p
}

// hide cuts secrets out of a message.
func (l Launch) hide(text string) string {
	marks := map[string]string{}
	for _, s := range l.Secrets {
		marks[s] = redacted
	}
	return redact.New(marks).String(text)
}

// prober asks a service about itself. It has connections of its own, uses no
// proxy, and follows no redirect: the service that was named has to answer.
type prober struct {
	base    string
	client  *http.Client
	headers http.Header // added to what is sent
	// hide cuts secrets out of what a service says; nil for none.
	hide func(string) string
}

func newProber(base string) *prober {
	return &prober{base: base, client: &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: probeTimeout}).DialContext,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       probeTimeout,
	}}
}

// open sends a GET and returns its answer if that has status 200.
func (p *prober) open(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range p.headers {
		req.Header[name] = values
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &statusError{path: path, status: resp.StatusCode, keyed: p.headers != nil}
	}
	return resp, nil
}

// answers returns nil if a GET of path has status 200.
func (p *prober) answers(ctx context.Context, path string) error {
	resp, err := p.open(ctx, path)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// get returns the body of a 200 answer and its Server header.
func (p *prober) get(ctx context.Context, path string) (body []byte, server string, err error) {
	resp, err := p.open(ctx, path)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, probeBytes+1))
	if err != nil {
		return nil, "", fmt.Errorf("GET %s: %w", path, err)
	}
	if len(body) > probeBytes {
		return nil, "", fmt.Errorf("GET %s: the answer is larger than %d bytes", path, probeBytes)
	}
	return body, resp.Header.Get("Server"), nil
}

type statusError struct {
	path   string
	status int
	keyed  bool // the question had a key
}

// denied says that the service wants to know who asks.
func (e *statusError) denied() bool {
	return e.status == http.StatusUnauthorized || e.status == http.StatusForbidden
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("GET %s: status %d", e.path, e.status)
	switch {
	case e.denied() && e.keyed:
		text += ": it does not take the API key"
	case e.denied():
		text += ": it wants an API key"
	}
	return text
}

// models lists the names of the models, sorted, and says whether the service is
// an emulated one.
func (p *prober) models(ctx context.Context) (names []string, isEmulated bool, err error) {
	const path = "/v1/models"
	body, server, err := p.get(ctx, path)
	if err != nil {
		return nil, false, err
	}
	isEmulated = server == emulated.Name
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, isEmulated, fmt.Errorf("GET %s: not a list of models: %w", path, schemas.PlainJSON(err))
	}
	if len(list.Data) > maxModelCount {
		return nil, isEmulated, fmt.Errorf("GET %s: %d models, more than %d", path, len(list.Data), maxModelCount)
	}
	for _, m := range list.Data {
		if m.ID == "" {
			return nil, isEmulated, fmt.Errorf("GET %s: a model without id", path)
		}
		if p.hide != nil && p.hide(m.ID) != m.ID { // names are archived, and cannot be edited
			return nil, isEmulated, fmt.Errorf("GET %s: the name of a model holds a secret", path)
		}
		names = append(names, m.ID)
		isEmulated = isEmulated || m.OwnedBy == emulated.Name
	}
	slices.Sort(names)
	return slices.Compact(names), isEmulated, nil
}

// emulatedPID asks an emulated engine for its process id.
func (p *prober) emulatedPID(ctx context.Context) (int, error) {
	body, _, err := p.get(ctx, "/health")
	if err != nil {
		return 0, err
	}
	var health struct {
		PID int `json:"pid"`
	}
	err = json.Unmarshal(body, &health)
	return health.PID, err
}
