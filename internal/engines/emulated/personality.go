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
	// chunk is an event of a stream with text; last says that no other follows.
	chunk func(g *generation, text string, last bool) any
	// endsBare says that a stream whose request fails ends without a word.
	endsBare bool
	// runsOn says that a request goes on when its client has gone.
	runsOn bool
}

func personalityOf(name string) personality {
	p := personality{routes: openaiRoutes, parse: parseOpenAI, fail: writeError, whole: (*generation).whole, stream: (*generation).streamed, chunk: (*generation).chunk}
	switch name {
	case PersonalityAegaeon:
		p.routes, p.parse, p.fail, p.runsOn = aegaeonRoutes, parseAegaeon, writeDetail, true
	case PersonalityVLLM:
		p.routes, p.chunk = vllmRoutes, (*generation).vllmChunk
	case PersonalityPyPTO:
		p.routes, p.parse, p.fail, p.endsBare = pyptoRoutes, parsePyPTO, writePyPTOError, true
		p.whole, p.stream, p.chunk = (*generation).pyptoWhole, (*generation).pyptoStream, (*generation).pyptoChunk
	}
	return p
}

func parseOpenAI(s *server, body []byte, chat bool) (*request, *apiError) {
	return parseRequest(body, chat, s.models)
}
