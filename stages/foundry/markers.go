package foundry

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"assay/schemas"
)

// What a log may tell of graphs.
const (
	MarkerCaptured = "captured"
	MarkerLoaded   = "loaded"
	MarkerReplay   = "replay"
)

// markers are the documented lines of the service's log.
var markers = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{MarkerCaptured, regexp.MustCompile(`captured(?: (\d+))? Foundry decode graphs?`)},
	{MarkerLoaded, regexp.MustCompile(`loaded (\d+) Foundry decode graph shapes`)},
	{MarkerReplay, regexp.MustCompile(`Foundry decode replay active`)},
}

// CountMarkers counts the lines of a log that tell of graphs.
func CountMarkers(log []byte, models []string) []schemas.GraphsMarker {
	out := make([]schemas.GraphsMarker, len(markers))
	for i, m := range markers {
		out[i] = schemas.GraphsMarker{Marker: m.name, ByModel: map[string]schemas.GraphsCount{}}
	}
	for line := range bytes.Lines(log) {
		for i, m := range markers {
			at := m.pattern.FindSubmatch(line)
			if at == nil {
				continue
			}
			out[i].Lines++
			model := namedIn(string(line), models)
			if model == "" {
				continue
			}
			c := out[i].ByModel[model]
			c.Lines++
			if len(at) > 1 {
				c.Graphs, _ = strconv.Atoi(string(at[1]))
			}
			out[i].ByModel[model] = c
		}
	}
	return out
}

// namedIn is the model that a line names as a word: the longest, as one name may be
// part of another.
func namedIn(line string, models []string) string {
	longest := ""
	for _, m := range models {
		if len(m) > len(longest) && hasWord(line, m) {
			longest = m
		}
	}
	return longest
}

func hasWord(line, word string) bool {
	for from := 0; ; {
		i := strings.Index(line[from:], word)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(word)
		if (i == 0 || !inName(line[i-1])) && (end == len(line) || !inName(line[end]) || line[end] == '.') {
			return true
		}
		from = i + 1
	}
}

// inName says whether a byte may be inside of a model's name.
func inName(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b >= 0x80 || strings.IndexByte("_-./", b) >= 0
}
