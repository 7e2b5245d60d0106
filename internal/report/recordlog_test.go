package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func ptr[T any](v T) *T { return &v }

// okRecord is a request that arrived at 10 ms·index and got n tokens, 10 ms apart,
// the first 100 ms after its arrival.
func okRecord(index, n int) schemas.RequestRecord {
	start := int64(index) * 10e6
	r := schemas.RequestRecord{
		Schema: schemas.RequestRecordV1, ID: fmt.Sprint(index), Index: index, Model: fmt.Sprintf("m%d", index%2), API: "completions",
		AskedInputTokens: 8, AskedOutputTokens: n, Held: true, Outcome: schemas.OutcomeOK, HTTPStatus: 200, StampSource: "user",
		ScheduledNs: start, DispatchedNs: ptr(start + 1e6), Chunks: []schemas.Chunk{}, FinishReason: "length",
		InputTokens: ptr(8), InputTokensSource: "usage", OutputTokens: ptr(n), OutputTokensSource: "usage",
	}
	for i := range n {
		r.Chunks = append(r.Chunks, schemas.Chunk{AtNs: start + 100e6 + int64(i)*10e6, Bytes: 3, Tokens: ptr(1)})
	}
	last := r.Chunks[n-1].AtNs
	r.FirstTokenNs, r.FirstVisibleNs, r.LastTokenNs = ptr(r.Chunks[0].AtNs), ptr(r.Chunks[0].AtNs), ptr(last)
	r.DoneNs, r.EndNs = ptr(last+1e6), last+1e6
	return r
}

func failedRecord(index int, o schemas.Outcome, waitedMs int64) schemas.RequestRecord {
	start := int64(index) * 10e6
	return schemas.RequestRecord{
		Schema: schemas.RequestRecordV1, ID: fmt.Sprint(index), Index: index, Model: "m0", API: "completions", AskedInputTokens: 8,
		AskedOutputTokens: 4, Held: true, Outcome: o, Error: "why", StampSource: "user", ScheduledNs: start,
		DispatchedNs: ptr(start), Chunks: []schemas.Chunk{}, EndNs: start + waitedMs*1e6,
	}
}

// writeLog writes the records with a flush after every third.
func writeLog(t testing.TB, recs []schemas.RequestRecord) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "requests.jsonl.zst")
	w, err := CreateRecords(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range recs {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
		if i%3 == 2 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Records() != len(recs) {
		t.Fatalf("%d records written, want %d", w.Records(), len(recs))
	}
	return path
}

func readAll(t testing.TB, r *RecordReader) ([]schemas.RequestRecord, error) {
	t.Helper()
	var out []schemas.RequestRecord
	for rec, err := range r.All() {
		if err != nil {
			return out, err
		}
		out = append(out, rec)
	}
	return out, nil
}

func someRecords(n int) []schemas.RequestRecord {
	var recs []schemas.RequestRecord
	for i := range n {
		recs = append(recs, okRecord(i, 1+i%4))
	}
	return recs
}

func TestRecordLogRoundTrip(t *testing.T) {
	recs := append(someRecords(10), failedRecord(10, schemas.OutcomeRefused, 3))
	path := writeLog(t, recs)
	r, err := OpenRecords(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := readAll(t, r)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(recs, got); d != "" {
		t.Error(d)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if at, torn := r.Torn(); torn || at != info.Size() {
		t.Errorf("whole log: torn %v at %d of %d", torn, at, info.Size())
	}
	// Any zstd tool reads the same lines.
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := zstd.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	text, err := io.ReadAll(plain)
	if err != nil || bytes.Count(text, []byte("\n")) != len(recs) {
		t.Errorf("plain zstd: %v, %d lines", err, bytes.Count(text, []byte("\n")))
	}
}

// Cut anywhere, the log gives every record of its whole frames and says where they
// end; cut there and appended to, it reads on.
func TestRecordLogTornAnywhere(t *testing.T) {
	recs := someRecords(9)
	raw, err := os.ReadFile(writeLog(t, recs))
	if err != nil {
		t.Fatal(err)
	}
	ends := map[int64]bool{}
	for cut := range len(raw) {
		r, err := NewRecordReader(bytes.NewReader(raw[:cut]), "log")
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t, r)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		at, torn := r.Torn()
		if torn != (at != int64(cut)) || at > int64(cut) || len(got)%3 != 0 {
			t.Fatalf("cut at %d: torn %v at %d, %d records", cut, torn, at, len(got))
		}
		if d := cmp.Diff(recs[:len(got)], append([]schemas.RequestRecord{}, got...)); d != "" {
			t.Fatalf("cut at %d: %s", cut, d)
		}
		ends[at] = true
		r.Close()
	}
	if len(ends) != 3 {
		t.Errorf("frames end at %v, want 3 places", ends)
	}
}

func TestRecordLogZeroTail(t *testing.T) {
	recs := someRecords(3)
	raw, err := os.ReadFile(writeLog(t, recs))
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRecordReader(bytes.NewReader(append(bytes.Clone(raw), make([]byte, 5000)...)), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := readAll(t, r)
	if at, torn := r.Torn(); err != nil || len(got) != 3 || !torn || at != int64(len(raw)) {
		t.Errorf("%v, %d records, torn %v at %d", err, len(got), torn, at)
	}
}

func TestRecordLogDamaged(t *testing.T) {
	raw, err := os.ReadFile(writeLog(t, someRecords(9)))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := NewRecordReader(bytes.NewReader(raw), "log")
	if err != nil {
		t.Fatal(err)
	}
	want, err := readAll(t, whole)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 0x10
		r, err := NewRecordReader(bytes.NewReader(bad), "log")
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t, r)
		_, torn := r.Torn()
		r.Close()
		var corrupt *CorruptError
		switch {
		case err == nil && !torn && cmp.Equal(want, got): // a bit that changes nothing, as the frame's own header has
		case err == nil && !torn:
			t.Fatalf("bit of byte %d flipped: other records, no error", i)
		case err != nil && !errors.As(err, &corrupt):
			t.Fatalf("bit of byte %d flipped: %v", i, err)
		default:
			noticed++
		}
	}
	if noticed < len(raw)*9/10 {
		t.Errorf("only %d of %d flipped bits were noticed", noticed, len(raw))
	}
}

func frame(t testing.TB, text string) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	return enc.EncodeAll([]byte(text), nil)
}

func TestRecordLogRefusesContent(t *testing.T) {
	const head = `{"schema":"assay/request-record/v1","id":"a","index":0,"model":"m","api":"chat","asked_input_tokens":1,"asked_output_tokens":1,"held":false,"stamp_source":"user","scheduled_ns":5,"end_ns":9,"chunks":[]`
	good := head + `,"outcome":"refused"}` + "\n"
	for name, text := range map[string]string{
		"no line end":       head + `,"outcome":"refused"}`,
		"two values":        head + `,"outcome":"refused"} {}` + "\n",
		"unknown key":       head + `,"outcome":"refused","extra":1}` + "\n",
		"unknown outcome":   head + `,"outcome":"fine"}` + "\n",
		"not JSON":          "hello\n",
		"stamps of no send": head + `,"outcome":"refused","done_ns":7}` + "\n",
		"order":             head + `,"outcome":"refused","dispatched_ns":8,"done_ns":7}` + "\n",
		"huge count":        head + `,"outcome":"refused","output_tokens":99999999999}` + "\n",
	} {
		r, err := NewRecordReader(bytes.NewReader(frame(t, good+text)), "log")
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t, r)
		r.Close()
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Line != 2 || len(got) != 1 {
			t.Errorf("%s: %v after %d records", name, err, len(got))
		}
	}
}

// A frame that unpacks to more than the limit is refused before it costs memory.
func TestRecordLogBomb(t *testing.T) {
	bomb := frame(t, string(make([]byte, maxFrameContent+1)))
	r, err := NewRecordReader(bytes.NewReader(bomb), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

type failingFile struct{ err error }

func (f failingFile) Append([]byte) error { return f.err }
func (f failingFile) Sync() error         { return nil }
func (f failingFile) Close() error        { return nil }

func TestRecordWriterFailsForGood(t *testing.T) {
	full := errors.New("disk full")
	w, err := NewRecordWriter(failingFile{full})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(okRecord(0, 1)); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Flush(), w.Write(okRecord(1, 1)), w.Close()} {
		if !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzRecordReader(f *testing.F) {
	raw, err := os.ReadFile(writeLog(f, someRecords(4)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)-3])
	f.Add(frame(f, "{}\n"))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00})
	f.Add(make([]byte, 9))
	f.Add([]byte("(\xb5/\xfd\x10\x00\x19\x00\x00\n\xba\xd3 \x00\x10\x00\x00\xe1\x7f\x9c"))
	f.Add(frame(f, "\n{}\n")) // an empty line is no end
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewRecordReader(bytes.NewReader(data), "log")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, err := readAll(t, r)
		var corrupt *CorruptError
		if err != nil && !errors.As(err, &corrupt) {
			t.Fatalf("error of another kind: %v", err)
		}
		if at, torn := r.Torn(); at < 0 || at > int64(len(data)) || (err == nil && !torn && at != int64(len(data))) {
			t.Fatalf("torn %v at %d of %d", torn, at, len(data))
		}
		opts := FoldOptions{SLO: &schemas.SLO{TTFTMs: 100, TPOTMs: 10}, OpenLoop: true}
		if _, err := Fold(Records(got), opts); err != nil && len(got) == 0 {
			t.Fatalf("fold of nothing: %v", err)
		}
	})
}

func TestEmptyLineIsDamageNotTheEnd(t *testing.T) {
	r, err := NewRecordReader(bytes.NewReader(frame(t, "\n")), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var corrupt *CorruptError
	if recs, err := readAll(t, r); !errors.As(err, &corrupt) {
		t.Errorf("%d records, %v", len(recs), err)
	}
}
