package measure

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"assay/internal/loadgen"
	"assay/pipeline"
	"assay/schemas"
)

// sized is what gives a prompt sent as text its length: the words it is to be made
// of, and the tokens the service counts in it, 0 where only usage will tell.
type sized interface {
	size(ctx context.Context, r *loadgen.Request) (words, counted int, err error)
	account(*schemas.LengthCalibration)
	Close()
}

// sizePrompts decides of how many words the prompts are made that are sent as text,
// and notes how their lengths were found. Prompts of token ids have exact ones.
func (p *plan) sizePrompts(ctx context.Context, task *pipeline.Task, set schemas.Settings) error {
	asking, api := task.Service.Asking, set.Text("api")
	var texts []*loadgen.Request
	for i := range p.requests {
		r := &p.requests[i]
		r.Index = i
		if len(r.History) > 0 {
			continue // the text alone is not what is sent
		}
		if r.Text == "" && api == loadgen.APICompletions {
			if !asking.TextPrompts {
				continue
			}
			r.PromptWords = max(1, r.InputTokens)
		}
		texts = append(texts, r)
	}
	if asking.Tokenize == nil || len(texts) == 0 {
		return nil
	}
	s, err := newSized(task, set, p.header.ContentSeed)
	if err != nil {
		return err
	}
	defer s.Close()
	cal := &schemas.LengthCalibration{Style: asking.Tokenize.Style}
	seen := spread{}
	told := newPace(task, "asking for the lengths of prompts", len(texts))
	for i, r := range texts {
		if err := told.at(ctx, i); err != nil {
			return err
		}
		words, counted, err := s.size(ctx, r)
		if err != nil {
			return fmt.Errorf("length of the prompt of request %s: %w", r.ID, err)
		}
		if r.Text == "" {
			r.PromptWords = words
		}
		if r.CountedTokens = counted; counted > 0 {
			cal.Counted++
			seen.add(counted, r.InputTokens)
		}
	}
	s.account(cal)
	cal.Asked, cal.Exact, cal.MaxAbsDiff, cal.MeanAbsDiff, cal.MeanDiff = seen.n, seen.exact, seen.maxAbs, seen.meanAbs(), seen.mean()
	p.header.Lengths = cal
	fmt.Fprintf(task.Log, "%s\n", calibrationText(*cal))
	if limit := set.Float("length_tolerance"); set.Bool("require_lengths") && seen.share() > limit {
		return fmt.Errorf("require_lengths: prompts differ from their asked lengths by %s of them, by the service's own count, length_tolerance is %s: shorter prompts than its special tokens cannot be made; ask for others, or raise it", schemas.Rounded(seen.share(), 4), schemas.Decimal(limit))
	}
	return nil
}

func calibrationText(c schemas.LengthCalibration) string {
	if c.Style == schemas.TokenizeUsage {
		return fmt.Sprintf("prompt lengths from the usage of %d requests: tokens per word %s, beside the words %s", c.Calls, byModel(c.PerWord), byModel(c.Fixed))
	}
	return fmt.Sprintf("prompt lengths by the service's tokenizer (%s): %d calls, %d prompts counted, %d of %d exact, largest difference %d tokens",
		c.Style, c.Calls, c.Counted, c.Exact, c.Asked, c.MaxAbsDiff)
}

func newSized(task *pipeline.Task, set schemas.Settings, seed uint64) (sized, error) {
	asking, api := task.Service.Asking, set.Text("api")
	if asking.Tokenize.Style == schemas.TokenizeUsage {
		client, err := loadgen.New(loadgen.Options{BaseURL: task.Service.URL, API: api, ContentSeed: seed, Headers: asking.Key.Header(),
			RequestTimeout: set.Duration("request_timeout"), IdleTimeout: set.Duration("request_timeout")})
		if err != nil {
			return nil, err
		}
		return &byUsage{client: client, fits: map[string]fit{}, hide: task.Hide}, nil
	}
	t, err := loadgen.NewTokenizer(task.Service.URL, api, *asking.Tokenize, asking.Key.Header())
	if err != nil {
		return nil, err
	}
	return &byTokenizer{Tokenizer: t, api: api, seed: seed, extra: map[string]int{}}, nil
}

// byTokenizer looks for the number of words that gives the asked tokens. Prompts of
// more words begin with those of fewer, so more words never give fewer tokens.
type byTokenizer struct {
	*loadgen.Tokenizer
	api   string
	seed  uint64
	extra map[string]int // by model: tokens beyond the words of the last prompt
}

// maxSizings bounds the questions for one prompt.
const maxSizings = 8

func (b *byTokenizer) size(ctx context.Context, r *loadgen.Request) (words, counted int, err error) {
	if r.Text != "" {
		counted, err = b.Count(ctx, r.Model, r.Text)
		return 0, counted, err
	}
	tried := map[int]bool{}
	next := max(1, r.InputTokens-b.extra[r.Model])
	for len(tried) < maxSizings && !tried[next] {
		tried[next] = true
		trial := *r
		trial.PromptWords = next
		text, _ := loadgen.PromptText(b.api, b.seed, trial)
		n, err := b.Count(ctx, r.Model, text)
		if err != nil {
			return 0, 0, err
		}
		if words == 0 || abs(n-r.InputTokens) < abs(counted-r.InputTokens) {
			words, counted = next, n
		}
		if n == r.InputTokens {
			break
		}
		next = max(1, next+step(r.InputTokens-n, n, next))
	}
	b.extra[r.Model] = counted - words
	return words, counted, nil
}

// step is by how many words a prompt changes that misses so many tokens.
func step(missing, tokens, words int) int {
	perWord := math.Max(1, float64(tokens)/float64(words))
	s := int(math.Round(float64(missing) / perWord))
	switch {
	case s != 0:
		return s
	case missing < 0:
		return -1
	}
	return 1
}

func (b *byTokenizer) account(c *schemas.LengthCalibration) {
	c.Calls, c.Cached = b.Calls(), b.Cached()
}

// byUsage learns, for each model, how many tokens a word has and how many a prompt
// has beside its words, from answers of one token to prompts that the run does not
// send: those would be in the service's prefix cache.
type byUsage struct {
	client *loadgen.Client
	hide   func(string) string
	fits   map[string]fit
	calls  int
}

type fit struct{ perWord, fixed float64 }

// usageIndex is where the prompts that are only for learning begin; those of a run
// are below it.
const usageIndex = 1 << 40

// usageWords are the lengths that are asked about.
var usageWords = []int{8, 8, 128, 128}

func (b *byUsage) Close() { b.client.Close() }

func (b *byUsage) size(ctx context.Context, r *loadgen.Request) (words, counted int, err error) {
	if r.Text != "" {
		return 0, 0, nil
	}
	f, ok := b.fits[r.Model]
	if !ok {
		if f, err = b.learn(ctx, r.Model); err != nil {
			return 0, 0, err
		}
		b.fits[r.Model] = f
	}
	return max(1, int(math.Round((float64(r.InputTokens)-f.fixed)/f.perWord))), 0, nil
}

func (b *byUsage) learn(ctx context.Context, model string) (fit, error) {
	sums := map[int]float64{}
	for _, n := range usageWords {
		rec := b.client.Do(ctx, loadgen.Request{ScheduledRequest: schemas.ScheduledRequest{
			Index: usageIndex + b.calls, ID: fmt.Sprintf("sizing-%d", b.calls), Model: model, InputTokens: n, PromptWords: n, OutputTokens: 1}})
		b.calls++
		if err := context.Cause(ctx); err != nil {
			return fit{}, err
		}
		if rec.InputTokensSource != "usage" || rec.InputTokens == nil {
			said := rec.Error
			if b.hide != nil {
				said = b.hide(said)
			}
			return fit{}, fmt.Errorf("model %s reports no usage for a prompt (%s %s): tokenize = { style = \"usage\" } needs it", model, rec.Outcome, said)
		}
		sums[n] += float64(*rec.InputTokens) / 2
	}
	short, long := usageWords[0], usageWords[len(usageWords)-1]
	f := fit{perWord: (sums[long] - sums[short]) / float64(long-short)}
	f.fixed = sums[short] - f.perWord*float64(short)
	if f.perWord <= 0 {
		return fit{}, fmt.Errorf("model %s counts %s tokens in %d words and %s in %d: its usage cannot be used", model, schemas.Decimal(sums[short]), short, schemas.Decimal(sums[long]), long)
	}
	return f, nil
}

func (b *byUsage) account(c *schemas.LengthCalibration) {
	c.Calls, c.PerWord, c.Fixed = b.calls, map[string]float64{}, map[string]float64{}
	for m, f := range b.fits {
		c.PerWord[m], c.Fixed[m] = f.perWord, f.fixed
	}
}

func abs(n int) int { return max(n, -n) }

// byModel lists numbers by model.
func byModel(numbers map[string]float64) string {
	var parts []string
	for _, model := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, model+" "+schemas.Rounded(numbers[model], 4))
	}
	return strings.Join(parts, ", ")
}
