package remote

import (
	"errors"
	"net/http"
	"testing"
)

type reached struct{}

var errReached = errors.New("reached")

func (reached) RoundTrip(*http.Request) (*http.Response, error) { return nil, errReached }

// A registry on this machine may name a token service, or redirect, anywhere:
// what is sent there must not be sent in clear.
func TestPlainHTTPStaysOnThisMachine(t *testing.T) {
	for url, want := range map[string]error{
		"http://127.0.0.1:5000/token":    errReached,
		"http://localhost/token":         errReached,
		"https://198.51.100.7/token":     errReached,
		"http://198.51.100.7:5079/token": errRefusedHTTP,
		"http://10.0.0.9/token":          errRefusedHTTP,
		"http://allowed.example/v2/":     errReached,
	} {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (guard{inner: reached{}, plain: "allowed.example", stall: stallTime}).RoundTrip(r); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", url, err, want)
		}
	}
}
