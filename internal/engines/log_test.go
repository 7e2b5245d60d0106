package engines

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func writeLog(t interface {
	Fatal(...any)
}, dir string, secrets []string, pattern *regexp.Regexp, pieces []string) (*serviceLog, string) {
	path := filepath.Join(dir, "log")
	os.Remove(path)
	l, err := openLog(path, secrets, pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		if n, err := l.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return l, string(b)
}

// However output is cut into writes, the log is the output with secrets replaced.
func TestSecretsNeverReachTheLog(t *testing.T) {
	dir := t.TempDir()
	secrets := []string{"abab", "abc", "b\na"}
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.StringOfN(rapid.SampledFrom([]rune("abc\n")), 0, 8, -1)).Draw(t, "pieces")
		_, got := writeLog(t, dir, secrets, nil, pieces)
		for _, s := range secrets {
			if strings.Contains(got, s) {
				t.Fatalf("%q in %q from %q", s, got, pieces)
			}
		}
		if kept := strings.ReplaceAll(got, redacted, ""); len(kept) > len(strings.Join(pieces, "")) {
			t.Fatalf("%q from %q", got, pieces)
		}
		if _, plain := writeLog(t, dir, nil, nil, pieces); plain != strings.Join(pieces, "") {
			t.Fatalf("without secrets: %q from %q", plain, pieces)
		}
	})
}

func TestLogPatternAndTail(t *testing.T) {
	re := regexp.MustCompile(`^up on \d+$`)
	for _, c := range []struct {
		pieces []string
		ready  bool
	}{
		{[]string{"not up on 8\n", "x"}, false},
		{[]string{"a\nup ", "on 8", "0\nb"}, true},
		{[]string{"up on 8\r\n"}, true},
		{[]string{"up on 8"}, true}, // no end of line yet
		{[]string{strings.Repeat("x", 3*lineBytes), "\nup on 1\n"}, true},
	} {
		if l, _ := writeLog(t, t.TempDir(), nil, re, c.pieces); l.ready() != c.ready {
			t.Errorf("%.40q: ready %v", c.pieces, l.ready())
		}
	}
	l, _ := writeLog(t, t.TempDir(), nil, nil, []string{strings.Repeat("line\n", 20000), "the\xffend\n\n"})
	if got := l.last(2); got != "line\nthe\uFFFDend" {
		t.Errorf("last lines %q", got)
	}
	if l.last(1) != "the\uFFFDend" {
		t.Errorf("last line %q", l.last(1))
	}
}
