package archive

import (
	"encoding/json"
	"strings"

	"assay/schemas"
)

// blobLabel says what a blob is to people, as far as that can be known.
type blobLabel struct {
	Kind  string `json:"kind"` // manifest, config, report, record, tree, pack, part, ...
	Run   string `json:"run,omitempty"`
	Stage string `json:"stage,omitempty"`
	Trial string `json:"trial,omitempty"`
	Path  string `json:"path,omitempty"`  // of the first file in it
	Files int    `json:"files,omitempty"` // how many files have bytes in it
}

// labels gathers names of blobs from documents. What cannot be read names
// nothing.
type labels struct {
	s  *Store
	of map[schemas.Digest]*blobLabel
}

func (s *Store) newLabels() *labels { return &labels{s: s, of: map[schemas.Digest]*blobLabel{}} }

func (l *labels) at(d schemas.Digest) *blobLabel {
	if l.of[d] == nil {
		l.of[d] = &blobLabel{Kind: kindOther}
	}
	return l.of[d]
}

// name says what a document is about; the first to know is believed.
func (l *labels) name(d schemas.Digest, kind, run, stage, trial string) {
	x := l.at(d)
	if x.Kind == kindOther {
		x.Kind = kind
	}
	if x.Run == "" {
		x.Run = run
	}
	if x.Stage == "" {
		x.Stage, x.Trial = stage, trial
	}
}

// learn reads the documents among the blobs: manifests first, since they know
// most.
func (l *labels) learn(list []schemas.Digest) {
	kinds := map[string][]schemas.Digest{}
	for _, d := range list {
		k := l.s.sniff(d)
		kinds[k] = append(kinds[k], d)
	}
	for _, d := range kinds[kindManifest] {
		l.manifest(d)
	}
	for _, d := range kinds[kindRecord] {
		if rec, err := l.s.readRecord(d); err == nil {
			l.record(d, rec, rec.Run)
		}
	}
	for _, d := range kinds[kindTree] {
		if l.at(d).Kind == kindOther {
			l.name(d, kindTree, "", "", "")
			l.files(d, nil, *l.at(d))
		}
	}
}

func (l *labels) manifest(d schemas.Digest) {
	b, err := l.s.readBlob(d, maxManifestBytes)
	if err != nil {
		return
	}
	m, err := parseManifest(b)
	if err != nil {
		return
	}
	run := m.Annotations[annotationRun]
	l.name(d, kindManifest, run, "", "")
	var c schemas.Run
	if b, err := l.s.readBlob(digestOf(m.Config), maxDocBytes); err == nil {
		_ = json.Unmarshal(b, &c) // what is not there names nothing
	}
	l.name(digestOf(m.Config), kindConfig, run, "", "")
	for _, layer := range m.Layers {
		l.name(digestOf(layer), kindOf(string(layer.MediaType)), run, "", "")
	}
	for _, files := range layersOf(m, MediaFiles) {
		l.files(digestOf(files), &c, blobLabel{Run: run})
	}
	for _, r := range c.Records {
		l.record(r.Digest, r.Record, run)
	}
	for _, s := range c.Services {
		l.name(s.Tree, kindTree, run, "service "+s.Service, "")
	}
}

func (l *labels) record(d schemas.Digest, rec schemas.StageRecord, run string) {
	l.name(d, kindRecord, run, rec.Stage, rec.Trial)
	if rec.Key != "" {
		l.name(rec.Key.Preimage(), "preimage", run, rec.Stage, rec.Trial)
	}
	if rec.Tree != "" {
		l.name(rec.Tree, kindTree, run, rec.Stage, rec.Trial)
		l.files(rec.Tree, nil, blobLabel{Run: run, Stage: rec.Stage, Trial: rec.Trial})
	}
}

// files names the blobs that a tree or a file list points into. With a config
// the stage follows from the path.
func (l *labels) files(d schemas.Digest, c *schemas.Run, who blobLabel) {
	t, err := l.s.eachEntry(d, func(schemas.TreeEntry) error { return nil })
	if err != nil {
		return
	}
	owners := verifier{config: c}
	first := map[schemas.Digest]bool{}
	for _, b := range t.Blobs {
		l.name(b.Digest, kindOf(b.MediaType), who.Run, "", "")
		first[b.Digest] = l.at(b.Digest).Files == 0
	}
	_, _ = l.s.eachEntry(d, func(e schemas.TreeEntry) error {
		for _, p := range e.Parts {
			x := l.at(p.Blob)
			if !first[p.Blob] {
				continue // another document has said it already
			}
			x.Files++
			if x.Path != "" {
				continue
			}
			x.Path, x.Stage, x.Trial = strings.Clone(e.Path), who.Stage, who.Trial
			if c != nil {
				x.Stage, x.Trial = owners.owner(e.Path)
			}
		}
		return nil
	})
}

// kindOf turns a media type of ours into a word.
func kindOf(media string) string {
	switch media {
	case MediaConfig:
		return kindConfig
	case MediaReport:
		return "report"
	case MediaExperiment, MediaSource:
		return "experiment"
	case MediaFiles:
		return "file list"
	case MediaRecord:
		return kindRecord
	case MediaPreimage:
		return "preimage"
	case MediaTree:
		return kindTree
	case MediaDocuments:
		return "documents"
	case MediaPack:
		return "pack"
	}
	if strings.HasPrefix(media, MediaPart) {
		return "part"
	}
	return kindOther
}
