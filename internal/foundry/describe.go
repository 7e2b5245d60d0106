package foundry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Describe reads a folder of archives, every file of it. What is wrong with it stands
// among the problems; the error is that of the folder itself, or of ctx.
func Describe(ctx context.Context, fsys fs.FS) (Archive, error) {
	t, err := list(ctx, fsys)
	if err != nil {
		return Archive{}, fmt.Errorf("read archives: %w", err)
	}
	d := &describer{tree: t, sums: map[string]string{}}
	a := Archive{Models: d.models()}
	for _, p := range sortedKeys(t.files) {
		if _, read := d.sums[p]; !read {
			d.other(p)
		}
		a.Bytes += t.files[p]
		a.Files = append(a.Files, File{Path: p, Size: t.files[p], SHA256: d.sums[p]})
	}
	for i := range a.Models {
		d.problems = append(d.problems, a.Models[i].problems(a.Files)...)
	}
	if err := ctx.Err(); err != nil {
		return Archive{}, fmt.Errorf("read archives: %w", err)
	}
	a.Layout = layout(a)
	slices.SortStableFunc(d.problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	if n := len(d.problems); n > maxProblems {
		d.problems = append(d.problems[:maxProblems:maxProblems], problem(Limit, ".", "%d problems more are not listed", n-maxProblems))
	}
	a.Problems = d.problems
	return a, nil
}

// maxProblems is how many are listed.
const maxProblems = 1000

// describer reads files once and keeps their digests.
type describer struct {
	*tree
	sums map[string]string
	rows int // kernels, entry points and members that are kept
}

// maxRows bounds what is kept of all files together.
const maxRows = 1 << 22

// keep counts rows that are to be kept.
func (d *describer) keep(n int) error {
	if d.rows += n; d.rows > maxRows {
		return fmt.Errorf("the files hold more than %d kernels, entry points and members together", maxRows)
	}
	return nil
}

func countMembers(groups []Group) (n int) {
	for _, g := range groups {
		n += 1 + len(g.Members)
	}
	return n
}

func countFunctions(list []Binary) (n int) {
	for _, d := range list {
		n += 1 + len(d.Functions)
	}
	return n
}

// stream reads a file with read, to its end, and keeps its digest. Problems are told.
func (d *describer) stream(p, kind string, read func(r io.Reader) error) bool {
	f, err := d.fsys.Open(p)
	if err != nil {
		d.add(Unreadable, p, "%v", plain(err))
		return false
	}
	defer f.Close()
	h := sha256.New()
	in := &counted{r: f, h: h, ctx: d.ctx}
	err = read(in)
	wrong := err
	if in.err == nil {
		_, _ = io.Copy(io.Discard, in) // what was not looked at belongs to the digest too
	}
	switch {
	case d.ctx.Err() != nil:
		return false
	case in.err != nil:
		d.add(Unreadable, p, "%v", plain(in.err))
		return false
	case in.n != d.files[p]:
		d.add(Unreadable, p, "it has %d bytes and had %d: it is being written to", in.n, d.files[p])
		return false
	}
	d.sums[p] = hex.EncodeToString(h.Sum(nil))
	if wrong != nil && d.files[p] > 0 { // an empty file is told of already
		d.add(kind, p, "%v", wrong)
	}
	return wrong == nil
}

// counted hashes and counts what is read, and keeps an error that is not the end.
type counted struct {
	r   io.Reader
	h   hash.Hash
	ctx context.Context
	n   int64
	err error
}

func (c *counted) Read(b []byte) (int, error) {
	if c.err = c.ctx.Err(); c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(b)
	c.h.Write(b[:n])
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// whole reads a file of a bounded size.
func (d *describer) whole(p, kind string, use func(b []byte) error) bool {
	if d.files[p] > MaxFileBytes {
		d.add(Limit, p, "%d bytes: more than %d", d.files[p], MaxFileBytes)
		d.sums[p] = ""
		return false
	}
	return d.stream(p, kind, func(r io.Reader) error {
		b := bytes.NewBuffer(make([]byte, 0, d.files[p]+bytes.MinRead))
		if _, err := b.ReadFrom(io.LimitReader(r, MaxFileBytes+1)); err != nil {
			return err
		}
		return use(b.Bytes())
	})
}

// other reads a file that has no meaning here.
func (d *describer) other(p string) {
	if strings.HasSuffix(p, jsonSuffix) {
		d.whole(p, BadJSON, isDocument)
		return
	}
	d.stream(p, Unreadable, func(io.Reader) error { return nil })
}

// models finds the folders of models and ranks.
func (d *describer) models() []Model {
	folders := d.byFolder()
	found := map[string]*Model{}
	model := func(dir string) *Model {
		if found[dir] == nil {
			found[dir] = &Model{Dir: dir, Name: nameOf(dir)}
		}
		return found[dir]
	}
	for _, dir := range sortedKeys(folders) {
		if slices.Contains(folders[dir], CatalogFile) {
			m := model(dir)
			d.whole(path.Join(dir, CatalogFile), BadCatalog, func(b []byte) error {
				c, err := ReadCatalog(b)
				if err == nil {
					m.Catalog, m.Name = &c, c.Model
				}
				return err
			})
		}
		switch n, isRank := rankOf(dir); {
		case isRank:
			m := model(path.Dir(dir))
			m.Ranks = append(m.Ranks, d.rank(dir, n, folders[dir]))
		case holdsGraphs(folders[dir]):
			m := model(dir)
			m.Ranks = append(m.Ranks, d.rank(dir, -1, folders[dir]))
		}
	}
	var out []Model
	for _, dir := range sortedKeys(found) {
		m := found[dir]
		slices.SortFunc(m.Ranks, func(a, b Rank) int { return cmp.Compare(a.Index, b.Index) })
		d.state(m)
		out = append(out, *m)
	}
	return out
}

// nameOf is the model that a folder's name stands for.
func nameOf(dir string) string {
	if dir == "." {
		return ""
	}
	name, err := url.PathUnescape(path.Base(dir))
	if err != nil {
		return path.Base(dir)
	}
	return name
}

func (d *describer) state(m *Model) {
	p := path.Join(m.Dir, StateFile)
	if _, ok := d.files[p]; !ok {
		return
	}
	d.whole(p, BadState, func(b []byte) error {
		s, err := ReadState(b)
		if err == nil {
			m.State = &s
		}
		return err
	})
}

// layout names the form of a folder.
func layout(a Archive) string {
	if len(a.Files) == 0 {
		return LayoutEmpty
	}
	catalogs, ranks := 0, 0
	for _, m := range a.Models {
		if m.Catalog != nil {
			catalogs++
		}
		if len(m.Ranks) > 0 && m.Ranks[0].Index >= 0 {
			ranks++
		}
	}
	switch n := len(a.Models); {
	case n > 0 && catalogs == n:
		return LayoutCatalog
	case n > 0 && ranks == n && catalogs == 0:
		return LayoutRanks
	}
	return LayoutUnknown
}

// problems are those between the files of a model.
func (m Model) problems(files []File) []Problem {
	var out []Problem
	for _, r := range m.Ranks {
		for _, rule := range rules {
			out = append(out, rule(r)...)
		}
	}
	if m.State != nil && m.State.FinalAllocOffset != nil {
		out = append(out, m.offsets()...)
	}
	if m.Catalog == nil {
		return out
	}
	at := path.Join(m.Dir, CatalogFile)
	if m.Catalog.ABI != CatalogABI {
		out = append(out, problem(BadCatalog, at, "obsolete ABI %d: want %d", m.Catalog.ABI, CatalogABI))
	}
	prefix := ""
	if m.Dir != "." {
		prefix = m.Dir + "/"
	}
	var have []File
	for _, f := range files {
		if rest, ok := strings.CutPrefix(f.Path, prefix); ok && rest != CatalogFile {
			have = append(have, File{Path: rest, Size: f.Size, SHA256: f.SHA256})
		}
	}
	for _, p := range Held(m.Catalog.Files, have) {
		if !fs.ValidPath(p.Path) {
			p = problem(BadCatalog, at, "files: %.200q leads out of the archive", p.Path)
		} else {
			p.Path = prefix + p.Path
		}
		out = append(out, p)
	}
	return out
}

// offsets wants the offset of the state to be that of a rank.
func (m Model) offsets() []Problem {
	told := 0
	for _, r := range m.Ranks {
		if r.FinalAllocOffset != nil {
			told++
			if *r.FinalAllocOffset == *m.State.FinalAllocOffset {
				return nil
			}
		}
	}
	if told == 0 {
		return nil
	}
	return []Problem{problem(StateDiffers, path.Join(m.Dir, StateFile), "final_alloc_offset is %d, which is that of no rank", *m.State.FinalAllocOffset)}
}
