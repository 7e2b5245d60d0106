package emulated

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// vocabulary is the number of token ids the engine generates.
const vocabulary = 32000

// Words that tokens stand for: token id i is words[i mod len(words)]. One in four
// has characters of several bytes, which clients are to survive.
var words = strings.Fields(`a river stone früh walks over bridge café while morning light naïve falls
upon quiet größe fields where small données birds gather before winter смысл comes across open 言葉 water
paper lantern señor holds steady between two mañana hills under wide sky niño every letter kept προς
within garden wall čas until evening bell žluť calls people home 🌱 again`)

// The words of several bytes, for the fault that splits them.
var wideWords = func() []string {
	var out []string
	for _, w := range words {
		if len(w) > utf8.RuneCountInString(w) {
			out = append(out, w)
		}
	}
	return out
}()

// random is a stream of numbers that is named by what it is for.
func random(purpose string, seed uint64, parts ...[]byte) *rand.Rand {
	h := sha256.New()
	h.Write([]byte("assay-emulated/v1\x00" + purpose + "\x00"))
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], seed)
	h.Write(n[:])
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	sum := h.Sum(nil)
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum), binary.BigEndian.Uint64(sum[8:])))
}

// output is everything about an answer that is settled when its request arrives.
type output struct {
	ids    []int
	finish string
	// due holds each token's time after arrival.
	due []time.Duration
	// visible is how many bytes of the text are shown, when a stop text hides the
	// rest; -1: all.
	visible int
}

// plan draws the answer to r.
func plan(c Config, r *request) output {
	tokens := random("tokens", c.Seed, []byte(r.model.Name), r.promptBytes)
	// The model would stop by itself here.
	natural := max(8+tokens.IntN(240), r.minTokens)
	out := output{finish: "length", visible: -1}
	n := r.maxTokens
	if !r.ignoreEOS && natural < n {
		n, out.finish = natural, "stop"
	}
	out.ids = make([]int, n)
	for i := range out.ids {
		out.ids[i] = tokens.IntN(vocabulary)
	}
	out.stopAt(r)
	n = len(out.ids)
	if c.Serving != nil { // the system says when
		out.due = make([]time.Duration, n)
		return out
	}
	out.due = times(c, r, n)
	return out
}

// stopAt ends the generation at a stop token, and the text at a stop text; behind
// that the generation goes on unseen.
func (o *output) stopAt(r *request) {
	if len(r.stopIDs) > 0 {
		if i := slices.IndexFunc(o.ids, func(id int) bool { return slices.Contains(r.stopIDs, id) }); i >= 0 && i+1 >= r.minTokens {
			o.ids, o.finish = o.ids[:i+1], "stop"
		}
	}
	if len(r.stops) == 0 {
		return
	}
	text := o.text(0, len(o.ids), false)
	for _, stop := range r.stops {
		at := strings.Index(text, stop)
		if at < 0 || (o.visible >= 0 && at >= o.visible) {
			continue
		}
		o.visible, o.finish = at, "stop"
		if r.keepStop {
			o.visible += len(stop)
		}
		if r.stopEnds {
			o.ids = o.ids[:o.covering(at+len(stop))]
		}
	}
}

// covering is how many tokens it takes for so many bytes of text.
func (o *output) covering(bytes int) int {
	length := 0
	for i, id := range o.ids {
		if length += len(words[id%len(words)]); length >= bytes {
			return i + 1
		}
		length++ // the space
	}
	return len(o.ids)
}

// shown is how many tokens the text that is shown has.
func (o *output) shown() int {
	if o.visible < 0 {
		return len(o.ids)
	}
	return len(strings.Fields(o.text(0, len(o.ids), false)))
}

// times draws when each of n tokens is due.
func times(c Config, r *request, n int) []time.Duration {
	var budget [8]byte
	binary.BigEndian.PutUint64(budget[:], uint64(r.maxTokens))
	rng := random("times", c.Seed, []byte(r.model.Name), r.promptBytes, budget[:])
	jittered := func(ns float64) float64 { return ns * (1 + r.model.Jitter*(2*rng.Float64()-1)) }
	m := r.model
	at := jittered(float64(m.PrefillBase) + float64(m.PrefillPerToken)*float64(r.promptTokens))
	due := make([]time.Duration, n)
	for i := range due {
		if i > 0 {
			at += jittered(float64(m.DecodePerToken))
		}
		due[i] = time.Duration(min(at/c.TimeScale, math.MaxInt64/4))
	}
	return due
}

// text is what tokens [from, to) read as.
func (o output) text(from, to int, wide bool) string {
	list := words
	if wide {
		list = wideWords
	}
	var b strings.Builder
	for i := from; i < to; i++ {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(list[o.ids[i]%len(list)])
	}
	if o.visible < 0 {
		return b.String()
	}
	before := 0 // bytes of the tokens ahead
	for i := range from {
		before += len(list[o.ids[i]%len(list)])
		if i > 0 {
			before++
		}
	}
	return b.String()[:max(0, min(b.Len(), o.visible-before))]
}
