package engines

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"sync"

	"assay/internal/durable"
)

const (
	tailBytes = 16 << 10 // kept in memory for messages
	tailLines = 20
	lineBytes = 64 << 10 // of a line that is matched against a pattern
	redacted  = "[secret]"
)

// serviceLog takes a service's output: it cuts secrets out, appends the rest to a
// file, remembers its end, and watches for a pattern.
type serviceLog struct {
	mu      sync.Mutex
	file    *durable.AppendFile
	secrets [][]byte
	replace *strings.Replacer // nil without secrets
	held    []byte            // may be the beginning of a secret
	tail    []byte
	pattern *regexp.Regexp // nil once matched
	line    []byte         // the last line, incomplete
	matched bool
}

func openLog(path string, secrets []string, pattern *regexp.Regexp) (*serviceLog, error) {
	f, err := durable.OpenAppend(path)
	if err != nil {
		return nil, fmt.Errorf("service log: %w", err)
	}
	l := &serviceLog{file: f, pattern: pattern}
	secrets = append([]string(nil), secrets...)
	sort.Slice(secrets, func(i, j int) bool { return len(secrets[i]) > len(secrets[j]) })
	var pairs []string
	for _, s := range secrets {
		if s != "" {
			l.secrets = append(l.secrets, []byte(s))
			pairs = append(pairs, s, redacted)
		}
	}
	if pairs != nil {
		l.replace = strings.NewReplacer(pairs...)
	}
	return l, nil
}

// Write takes the next output; what may yet become a secret waits for more.
func (l *serviceLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replace == nil {
		return len(p), l.put(p)
	}
	all := []byte(l.replace.Replace(string(append(l.held, p...))))
	keep := l.secretPrefix(all)
	l.held = append([]byte(nil), all[len(all)-keep:]...)
	return len(p), l.put(all[:len(all)-keep])
}

// secretPrefix is the length of the longest end of b that begins a secret.
func (l *serviceLog) secretPrefix(b []byte) int {
	longest := 0
	for _, s := range l.secrets {
		for n := min(len(s)-1, len(b)); n > longest; n-- {
			if bytes.HasSuffix(b, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}

func (l *serviceLog) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	l.tail = append(l.tail, b...)
	if len(l.tail) > 2*tailBytes {
		l.tail = append([]byte(nil), l.tail[len(l.tail)-tailBytes:]...)
	}
	l.watch(b)
	return l.file.Append(b)
}

// watch matches each line, the incomplete last one included.
func (l *serviceLog) watch(b []byte) {
	for l.pattern != nil && len(b) > 0 {
		part, rest, whole := bytes.Cut(b, []byte("\n"))
		b = rest
		l.line = append(l.line, part[:min(len(part), max(0, lineBytes-len(l.line)))]...)
		if l.pattern.Match(bytes.TrimSuffix(l.line, []byte("\r"))) {
			l.matched, l.pattern, l.line = true, nil, nil
			return
		}
		if whole {
			l.line = l.line[:0]
		}
	}
}

// ready reports whether the pattern was seen.
func (l *serviceLog) ready() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.matched
}

// last returns the last lines, at most n.
func (l *serviceLog) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	tail := l.tail[max(0, len(l.tail)-tailBytes):]
	lines := strings.Split(strings.TrimRight(strings.ToValidUTF8(string(tail), "\uFFFD"), "\r\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// close writes what was held back and makes the log durable.
func (l *serviceLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.put(l.held)
	l.held = nil
	if syncErr := l.file.Sync(); err == nil {
		err = syncErr
	}
	if closeErr := l.file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// hide cuts secrets out of a message.
func (l *serviceLog) hide(s string) string {
	if l.replace == nil {
		return s
	}
	return l.replace.Replace(s)
}

// hideError is err with secrets cut out of its message. Only an error that holds
// none keeps what it wraps.
func (l *serviceLog) hideError(err error) error { return hideError(l.hide, err) }

func hideError(hide func(string) string, err error) error {
	if msg := hide(err.Error()); msg != err.Error() {
		return errors.New(msg)
	}
	return err
}
