package remote

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const someDigest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"oci://reg.example/team/runs:base":                   "",
		"oci://reg.example:5000/runs":                        "",
		"oci://localhost:5000/a/b/c:t@" + someDigest:         "",
		"oci://127.0.0.1:5000/runs@" + someDigest:            "",
		"oci://[::1]:5000/runs:t":                            "",
		"oci://docker.io/library/runs:t":                     "oci://index.docker.io/library/runs:t",
		"oci://runs:t":                                       "error",
		"oci://reg.example/":                                 "error",
		"oci:///runs":                                        "error",
		"oci://reg.example/Runs:t":                           "error",
		"oci://reg.example/runs:-t":                          "error",
		"oci://reg.example/runs:":                            "error",
		"oci://reg.example/runs@sha256:12":                   "error",
		"oci://reg.example/runs:t?x=y":                       "error",
		"oci://reg.example/runs/../other:t":                  "error",
		"oci://user:pw@reg.example/runs:t":                   "error",
		"oci://team/runs:t":                                  "error",
		"docker://reg.example/runs:t":                        "error",
		"oci://reg.example/" + strings.Repeat("a", 300):      "error",
		"oci://reg.example/runs:" + strings.Repeat("a", 129): "error",
	} {
		got, err := Parse(in)
		switch {
		case want == "error":
			if err == nil {
				t.Errorf("%s is taken as %s", in, got)
			} else if strings.Contains(err.Error(), "user:pw") {
				t.Errorf("error %q holds the credentials", err)
			}
		case err != nil:
			t.Errorf("%s: %v", in, err)
		case want == "" && got.String() != in, want != "" && got.String() != want:
			t.Errorf("%s is taken as %s, want %s", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("oci://reg.example:5000/team/runs:base@" + someDigest)
	f.Add("oci://user:pw@[::1]/a:b")
	f.Fuzz(func(t *testing.T, in string) {
		r, err := Parse(in)
		if err != nil {
			return
		}
		again, err := Parse(r.String())
		if err != nil || again != r {
			t.Errorf("%q gives %s, which gives %s, %v", in, r, again, err)
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("Bearer abcdefghij at https://u:p@h/x?token=1\x1b[2J", "abcdefghij")
	f.Fuzz(func(t *testing.T, text, secret string) {
		if !utf8.ValidString(secret) {
			secret = ""
		}
		out := clean(text, []string{secret})
		if len([]rune(out)) > maxErrorMessage+3 || strings.ContainsAny(out, "\n\r\x1b") {
			t.Errorf("%q is cleaned to %q", text, out)
		}
	})
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain words":                             "plain words",
		"the secret s3cr3t here":                  "the secret [hidden] here",
		"Authorization: Bearer abc.def-ghi":       "Authorization: [hidden]",
		"token eyJhbGciOiJIUzI1NiJ9.e30.abc":      "token [hidden]",
		"Get https://h/v2/?sig=0123&x=y: refused": "Get https://h/v2/ refused",
		"at https://me:pw@h/x":                    "at https://h/x",
		"two\nlines\x1b[31m":                      "two lines",
	} {
		if got := clean(in, []string{"s3cr3t", ""}); got != want {
			t.Errorf("%q is cleaned to %q, want %q", in, got, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	for in, want := range map[string]int64{"0-99": 100, "0-0": 0, "bytes=0-9": 10, "": -1, "5-9": -1, "0-x": -1, "0--1": -1, "0-9999999999999999999": -1} {
		got, ok := received(in)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("Range %q is %d bytes, want %d", in, got, want)
		}
	}
	now := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-3": 0, "Sat, 01 Mar 2025 12:00:30 GMT": 30 * time.Second, "Sat, 01 Mar 2025 11:00:00 GMT": 0, "soon": 0} {
		if got := asked(map[string][]string{"Retry-After": {in}}, now); got != want {
			t.Errorf("Retry-After %q is %s, want %s", in, got, want)
		}
	}
	for n := range 20 {
		if d := pause(n); d < firstPause/2 || d > longestPause {
			t.Errorf("pause %d is %s", n, d)
		}
	}
}
