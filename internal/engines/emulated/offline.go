package emulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"assay/internal/serving"
)

// shownIDs is how many token ids of an answer are printed.
const shownIDs = 64

// Offline is what PyPTO's command line generates without a server.
type Offline struct {
	Prompts []string
	// GenerateConfig is a JSON object, or empty for the defaults.
	GenerateConfig string
}

// generateConfig are its keys.
var generateConfig = form{
	"max_new_tokens": {kind: kindInt, min: atLeast(1)}, "temperature": {kind: kindNumber, min: atLeast(0)}, "top_p": {kind: kindNumber},
	"top_k": {kind: kindInt, null: true, min: atLeast(1)}, "seed": {kind: kindInt, null: true, min: atLeast(0)},
	"stop": {kind: kindList}, "stream": {kind: kindBool}, "ignore_eos": {kind: kindBool},
}

// Generate answers the prompts as PyPTO's command line does, and prints its lines:
// nothing in them says how long any one prompt took.
func Generate(ctx context.Context, c Config, o Offline, stdout io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	requests, stream, err := o.requests(c)
	if err != nil {
		return err
	}
	s, err := newServer(c, Options{Log: io.Discard})
	if err != nil {
		return err
	}
	if s.live != nil {
		defer s.live.start(ctx)()
	}
	if s.profiler != nil {
		if err := s.profiler.start(); err != nil {
			return err
		}
	}
	model := c.Models[0].Name
	fmt.Fprintf(stdout, "Generating %d prompt(s): model=%s\n", len(requests), model)
	begin := time.Now()
	var answers []*generation
	for _, r := range requests {
		g := &generation{s: s, req: r, out: plan(c, r), arrived: begin}
		if s.live != nil {
			if refused := s.live.admit(g); refused != nil {
				return fmt.Errorf("generate: %w", refused)
			}
		}
		answers = append(answers, g)
	}
	total, err := wait(ctx, answers, stream, stdout)
	elapsed := time.Since(begin)
	if s.profiler != nil {
		s.profiler.add("cli.generate", "request", begin, begin.Add(elapsed), 1, map[string]any{"model_id": model, "num_prompts": len(requests), "max_new_tokens": requests[0].maxTokens, "stream": stream})
		_, stopErr := s.profiler.stop()
		err = errors.Join(err, stopErr)
	}
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if !stream {
		for i, g := range answers {
			g.print(stdout, i+1, len(answers))
		}
	}
	_, err = fmt.Fprintf(stdout, "[generate] %d tokens in %.2fs (%.1f tok/s)\n", total, elapsed.Seconds(), float64(total)/elapsed.Seconds())
	return err
}

// wait returns the number of tokens once all answers are there.
func wait(ctx context.Context, answers []*generation, stream bool, stdout io.Writer) (total int, err error) {
	for _, g := range answers {
		n := len(g.out.ids)
		for i := range n {
			if err := g.offline(ctx, i); err != nil {
				return 0, err
			}
			if stream {
				fmt.Fprint(stdout, g.out.text(i, i+1, false))
			}
		}
		if stream {
			fmt.Fprintf(stdout, "\nfinish_reason: %s\n", g.out.finish)
		}
		total += n
	}
	return total, nil
}

// offline waits for token i.
func (g *generation) offline(ctx context.Context, i int) error {
	if g.ticket != nil {
		_, err := g.ticket.Token(ctx, i)
		var failed *serving.Failed
		if errors.As(err, &failed) {
			return failure(failed)
		}
		return err
	}
	if !waitUntil(ctx, g.arrived.Add(g.out.due[i])) {
		return context.Cause(ctx)
	}
	return nil
}

func (g *generation) print(w io.Writer, i, n int) {
	ids := make([]string, 0, shownIDs)
	for _, id := range g.out.ids[:min(shownIDs, len(g.out.ids))] {
		ids = append(ids, strconv.Itoa(id))
	}
	more := ""
	if len(g.out.ids) > shownIDs {
		more = "..."
	}
	fmt.Fprintf(w, "-- prompt %d/%d --\ntext: %s\ntoken_ids: [%s]%s\nfinish_reason: %s\n", i, n, g.out.text(0, len(g.out.ids), false), strings.Join(ids, ", "), more, g.out.finish)
}

// Check says what is wrong with what is asked for.
func (o Offline) Check(c Config) error {
	_, _, err := o.requests(c)
	return err
}

// requests checks everything that is asked for.
func (o Offline) requests(c Config) ([]*request, bool, error) {
	if len(o.Prompts) == 0 {
		return nil, false, errors.New("generate: no prompt")
	}
	in := map[string]any{}
	if o.GenerateConfig != "" {
		var refused *apiError
		if in, refused = generateConfig.read([]byte(o.GenerateConfig), false); refused != nil {
			return nil, false, fmt.Errorf("generate config: %s", refused.list[0])
		}
	}
	if p, ok := in["top_p"].(float64); ok && (p <= 0 || p > 1) {
		return nil, false, errors.New("generate config: top_p must be in (0, 1]")
	}
	stream := truth(in, "stream", false)
	if stream && len(o.Prompts) != 1 {
		return nil, false, fmt.Errorf("generate config: stream takes exactly one prompt, not %d", len(o.Prompts))
	}
	if v, set := in["max_new_tokens"]; set { // the name that a request has for it
		in["max_tokens"] = v
	}
	var out []*request
	for i, prompt := range o.Prompts {
		r := &request{model: c.Models[0], ignoreEOS: truth(in, "ignore_eos", false), stopEnds: true}
		if refused := r.samplePyPTO(in); refused != nil {
			return nil, false, fmt.Errorf("generate config: %w", refused)
		}
		if refused := r.readPrompt(&body{Prompt: encode(prompt)}); refused != nil {
			return nil, false, fmt.Errorf("prompt %d: %w", i+1, refused)
		}
		if r.promptTokens+r.maxTokens > r.model.MaxModelLen {
			return nil, false, fmt.Errorf("prompt %d: %d tokens and max_new_tokens of %d exceed max_model_len of %d", i+1, r.promptTokens, r.maxTokens, r.model.MaxModelLen)
		}
		out = append(out, r)
	}
	return out, stream, nil
}

func (i invalid) String() string {
	var at []string
	for _, l := range i.Loc[1:] {
		at = append(at, fmt.Sprint(l))
	}
	return strings.Join(at, ".") + ": " + i.Msg
}
