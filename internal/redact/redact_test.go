package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPrefixOfAnother(t *testing.T) {
	s := New(map[string]string{"key": "[a]", "key-extended": "[b]", "": "[empty]"})
	for in, want := range map[string]string{
		"x key y": "x [a] y", "key-extended": "[b]", "key-ext": "[a]-ext", "keykey": "[a][a]", "ke": "ke", "key-extende": "[a]-extende", "": "",
	} {
		if got := s.String(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestSplitAnywhere checks that it does not matter how a text is cut into writes,
// and that no secret is left.
func TestSplitAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab]{1,4}`)
		marks := map[string]string{}
		for _, v := range rapid.SliceOfN(word, 1, 4).Draw(t, "secrets") {
			marks[v] = "#"
		}
		text := rapid.StringMatching(`[abc]{0,30}`).Draw(t, "text")
		s := New(marks)
		whole := s.String(text)
		var b bytes.Buffer
		w := s.Writer(&b)
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if b.String() != whole {
			t.Fatalf("%q in pieces gives %q, whole %q", text, b.String(), whole)
		}
		for v := range marks {
			if strings.Contains(whole, v) {
				t.Fatalf("%q still holds %q", whole, v)
			}
		}
	})
}

func TestFind(t *testing.T) {
	s := New(map[string]string{"canary-0123": "[secret:x]"})
	long := strings.Repeat("z", 256<<10-3) + "canary-0123" + strings.Repeat("z", 100)
	for in, want := range map[string]string{long: "[secret:x]", "canary-012": "", "": ""} {
		got, err := s.Find(strings.NewReader(in))
		if err != nil || got != want {
			t.Errorf("%d bytes: %q %v, want %q", len(in), got, err, want)
		}
	}
}

func TestFormsThatProgramsWrite(t *testing.T) {
	value := "s3cr3t\"quote<é\nend"
	s := New(map[string]string{value: "[x]"})
	once, err := json.Marshal(map[string]string{"m": "bad token " + value})
	if err != nil {
		t.Fatal(err)
	}
	twice, err := json.Marshal(map[string]string{"m": string(once)})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(once), string(twice), "q=" + url.QueryEscape(value), "one line " + strings.ReplaceAll(value, "\n", " "), "basic " + base64.StdEncoding.EncodeToString([]byte(value+"zzz"))} {
		got := s.String(text)
		if !strings.Contains(got, "[x]") || strings.Contains(got, "s3cr3t") {
			t.Errorf("%s became %s", text, got)
		}
	}
}

func TestBase64AtEveryAlignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[a-zA-Z0-9_-]{6,40}`).Draw(t, "secret")
		before := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "before")
		after := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "after")
		s := New(map[string]string{value: "#"})
		text := append(append(before, value...), after...)
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			got := s.String(enc.EncodeToString(text))
			if !strings.Contains(got, "#") {
				t.Fatalf("%q in %q became %q", value, text, got)
			}
			// What is left on either side is at most one character that holds a part of it.
			left, right, _ := strings.Cut(got, "#")
			if len(left) > (8*len(before)+5)/6 || len(right) > 3+(8*len(after)+11)/6 {
				t.Fatalf("%q in %q became %q", value, text, got)
			}
		}
		if got := s.String(hex.EncodeToString(text)); !strings.Contains(got, "#") {
			t.Fatalf("hexadecimal: %q", got)
		}
	})
}

func TestWithoutTheLineEndThatCameWithIt(t *testing.T) {
	s := New(map[string]string{"canary-0123\n": "[x]", " \n": "[blank]"})
	if got := s.String("key=canary-0123, and a  blank"); got != "key=[x], and a  blank" {
		t.Error(got)
	}
}
