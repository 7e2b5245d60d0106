package emulated

import "net/http"

// personality is whose API a server has.
type personality struct {
	routes func(s *server, mux *http.ServeMux)
	// parse reads and checks the body of a request to generate.
	parse func(s *server, body []byte, chat bool) (*request, *apiError)
	fail  func(w http.ResponseWriter, e *apiError)
	// whole and stream answer.
	whole, stream func(g *generation) error
	// runsOn says that a request goes on when its client has gone.
	runsOn bool
}

func personalityOf(string) personality {
	return personality{
		routes: openaiRoutes, fail: writeError, whole: (*generation).whole, stream: (*generation).streamed,
		parse: func(s *server, b []byte, chat bool) (*request, *apiError) { return parseRequest(b, chat, s.models) },
	}
}
