package workload

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/schemas"
)

const header = "Request Time,Model Name,Input Length,Output Length\n"

func write(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "w.csv")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWellFormed(t *testing.T) {
	for _, c := range []string{
		header + "00:00:00.000,a,1,1\n00:00:01.000,b,2,2\n",
		"request_id,timestamp,input_tokens,output_tokens\nx,0,1,1\ny,5,1,1\n",
	} {
		path := write(t, []byte(c))
		fs := Check("s", path, Options{Unit: "ms", ServiceModels: []string{"m", "n"}})
		if len(fs) != 1 || fs[0].Severity != schemas.SeverityPass {
			t.Errorf("%q: %+v", c, fs)
		}
	}
}

// What the measure stage reads is well formed here, and what it refuses is not.
func TestOtherForms(t *testing.T) {
	azure := "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5000,10\n2023-11-16 18:15:47,50,10\n"
	for _, c := range []struct {
		text string
		opts Options
		ok   bool
	}{
		{azure, Options{}, true}, {azure, Options{MaxTotal: 4096}, false}, {azure, Options{MaxTotal: 4096, Over: "drop"}, true}, {azure, Options{Form: "burstgpt"}, false},
		{"{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": [1]}\n", Options{}, true},
		{"a prompt\n", Options{Form: "text"}, true}, {"a prompt\n", Options{}, false},
		{"[{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}]", Options{}, true},
		{"[\n{\"conversations\": [{\"from\": \"human\", \"value\": 5}]},\n\n{}]", Options{}, false},
	} {
		fs := Check("s", write(t, []byte(c.text)), c.opts)
		if len(fs) != 1 || (fs[0].Severity == schemas.SeverityPass) != c.ok {
			t.Errorf("%.40q %+v: %+v", c.text, c.opts, fs)
		}
	}
}

func TestEveryBadLineIsNamed(t *testing.T) {
	path := write(t, []byte(header+
		"00:00:00.000,a,1,1\n"+
		"00:00:01.000,a,zero,1\n"+ // 3
		"00:00:02.000,a,1,1\n"+
		"00:00:01.500,a,1,1\n"+ // 5: not monotone
		"00:00:03.000,a,1\n"+ // 6
		"00:00:04.000,a,0,1\n"+ // 7
		"00:00:05.000,a,1,1\n"))
	fs := Check("s", path, Options{Unit: "s"})
	var lines []int
	for _, f := range fs {
		lines = append(lines, f.Line)
		if f.ID != "workload.form" || f.Severity != schemas.SeverityError || f.File != path || !strings.HasPrefix(f.Message, fmt.Sprintf("%s:%d: ", path, f.Line)) {
			t.Errorf("finding: %+v", f)
		}
	}
	if fmt.Sprint(lines) != "[3 5 6 7]" {
		t.Errorf("lines %v, want 3, 5, 6 and 7", lines)
	}
}

func TestWhenEveryRowIsBadEachIsNamedOnce(t *testing.T) {
	fs := Check("s", write(t, []byte(header+"x\ny\n")), Options{Unit: "s"})
	if len(fs) != 2 || fs[0].Line != 2 || fs[1].Line != 3 {
		t.Errorf("findings: %+v", fs)
	}
}

func TestTheNumberOfFindingsIsBounded(t *testing.T) {
	fs := Check("s", write(t, []byte(header+strings.Repeat("nonsense\n", 1000))), Options{Unit: "s"})
	if len(fs) != maxFindings {
		t.Errorf("%d findings, want %d", len(fs), maxFindings)
	}
}

func TestMoreModelsThanTheServiceHas(t *testing.T) {
	path := write(t, []byte(header+"00:00:00.000,a,1,1\n00:00:01.000,b,2,2\n"))
	fs := Check("s", path, Options{Unit: "s", ServiceModels: []string{"m"}})
	if len(fs) != 1 || fs[0].ID != "workload.models" || fs[0].Severity != schemas.SeverityError {
		t.Errorf("findings: %+v", fs)
	}
	if fs := Check("s", path, Options{Unit: "s"}); fs[0].Severity != schemas.SeverityPass {
		t.Errorf("with models unknown: %+v", fs)
	}
}

func TestOtherFilesAndMissingOnes(t *testing.T) {
	for _, c := range []struct {
		content string
		line    int
	}{{"", 1}, {"a,b\n1,2\n", 1}, {header, 1}} {
		fs := Check("s", write(t, []byte(c.content)), Options{Unit: "s"})
		if len(fs) != 1 || fs[0].Severity != schemas.SeverityError || fs[0].Line != c.line {
			t.Errorf("%q: %+v", c.content, fs)
		}
	}
	fs := Check("s", filepath.Join(t.TempDir(), "none.csv"), Options{Unit: "s"})
	if len(fs) != 1 || fs[0].Severity != schemas.SeverityUnknown {
		t.Errorf("a missing file: %+v", fs)
	}
}

func TestPublishedWorkloads(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "data", "aegaeon", "workloads")
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(files) == 0 {
		t.Skip("the published workloads are not beside the checkout")
	}
	for _, f := range files {
		if fs := Check("s", f, Options{Unit: "s"}); len(fs) != 1 || fs[0].Severity != schemas.SeverityPass {
			t.Errorf("%s: %+v", filepath.Base(f), fs)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"", header, header + "00:00:00.000,a,1,1\n", header + "x\n\n00:00:00.000,a,1,1\r\n", "request_id,timestamp,input_tokens,output_tokens\na,1,1,1\na,1,1,1\nb,0,1,1",
		header + "00:00:01.000,a,1,1\n00:00:00.000,a,1,1\n00:00:00.000,\"a\n", "\xef\xbb\xbf" + header + "\xff\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := write(t, content)
		fs := Check("s", path, Options{Unit: "s", ServiceModels: []string{"a", "b"}})
		if len(fs) == 0 || len(fs) > maxFindings {
			t.Fatalf("%d findings", len(fs))
		}
		lines := bytes.Count(content, []byte("\n")) + 1
		seen := map[int]bool{}
		for _, x := range fs {
			if x.ID == "workload.form" && x.Severity == schemas.SeverityError {
				if x.Line < 1 || x.Line > lines || seen[x.Line] {
					t.Fatalf("line %d of %d, named before: %v", x.Line, lines, seen[x.Line])
				}
				seen[x.Line] = true
			}
		}
	})
}
