package archive

import (
	"errors"
	"fmt"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

// documents checks every document of the run: bytes, schema, and that they agree.
func (v *verifier) documents() {
	v.readConfig()
	v.readReport()
	v.readFiles()
	var experiment []byte
	for _, d := range layersOf(v.manifest, MediaExperiment) {
		experiment, _ = v.layer(d, nameExperiment)
	}
	for _, d := range layersOf(v.manifest, MediaSource) {
		v.layer(d, nameSource)
	}
	v.stageLayers()
	if v.config == nil {
		return
	}
	v.checkAnnotations()
	trees := v.stageDocuments()
	v.checkUnion(trees)
	v.checkReport()
	v.checkConsistency(experiment)
}

// layer reads a document that is a layer or the config, and adds a finding when
// its bytes are not what its descriptor says.
func (v *verifier) layer(d v1.Descriptor, title string) ([]byte, bool) {
	digest := digestOf(d)
	b, err := v.doc(digest, title)
	if err == nil && int64(len(b)) != d.Size {
		err = fmt.Errorf("it has %d bytes, the manifest says %d", len(b), d.Size)
	}
	if err != nil {
		v.bad[digest] = true
		stage, trial := v.docOwner(digest)
		v.fault(err, schemas.Finding{ID: faultID(err), Subject: title, Blob: digest, Stage: stage, Trial: trial, Path: title})
		return nil, false
	}
	v.count(d.Size)
	return b, true
}

func faultID(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "archive.blob-missing"
	}
	return "archive.blob-corrupt"
}

// document reads, validates and decodes a layer.
func (v *verifier) document(d v1.Descriptor, title, id, schema string, into any) bool {
	b, ok := v.layer(d, title)
	if !ok {
		return false
	}
	err := validateDoc(schema, b)
	if err == nil {
		err = decodeStrict(b, into)
	}
	if err != nil {
		v.add(schemas.Finding{ID: id, Subject: title, Message: err.Error(), Blob: digestOf(d), Path: title})
	}
	return err == nil
}

func (v *verifier) readConfig() {
	var run schemas.Run
	if !v.document(v.manifest.Config, nameConfig, "archive.config", schemas.RunV1, &run) {
		return
	}
	if _, err := mountsOf(run); err != nil {
		v.add(schemas.Finding{ID: "archive.config", Subject: nameConfig, Message: err.Error(), Blob: digestOf(v.manifest.Config), Path: nameConfig})
		return
	}
	v.config = &run
}

func (v *verifier) readReport() {
	var report schemas.Report
	if v.document(layersOf(v.manifest, MediaReport)[0], nameReport, "archive.report", schemas.ReportV1, &report) {
		v.report = &report
	}
}

func (v *verifier) readFiles() {
	d := layersOf(v.manifest, MediaFiles)[0]
	var list schemas.Tree
	if !v.document(d, nameFiles, "archive.files", schemas.TreeV1, &list) {
		return
	}
	if err := checkTreeDoc(list); err != nil {
		v.add(schemas.Finding{ID: "archive.files", Subject: nameFiles, Message: err.Error(), Blob: digestOf(d), Path: nameFiles})
		return
	}
	v.files = &list
}

// stageLayers checks the bytes of every record, preimage, tree and bundle layer,
// whether or not the config can be read.
func (v *verifier) stageLayers() {
	for media, dir := range map[string]string{MediaRecord: dirRecords, MediaPreimage: dirPreimages, MediaTree: dirTrees} {
		for _, d := range layersOf(v.manifest, media) {
			v.layer(d, dir+"/"+digestOf(d).Hex()+".json")
		}
	}
}

// stageDocuments checks what the records say, and returns the trees that could
// be read, by blob.
func (v *verifier) stageDocuments() map[schemas.Digest]schemas.Tree {
	trees := map[schemas.Digest]schemas.Tree{}
	want := map[schemas.Digest]bool{digestOf(v.manifest.Config): true}
	for _, d := range v.manifest.Layers {
		want[digestOf(d)] = true
	}
	bundled := len(layersOf(v.manifest, MediaDocuments)) > 0
	for _, doc := range stageDocs(*v.config) {
		stage, trial := v.docOwner(doc.digest)
		f := schemas.Finding{Subject: doc.title, Blob: doc.digest, Stage: stage, Trial: trial, Path: doc.title}
		if !want[doc.digest] && !bundled {
			f.ID, f.Message = "archive.manifest", "the config names it, the manifest does not list it"
			v.add(f)
			continue
		}
		if v.bad[doc.digest] {
			continue
		}
		b, err := v.doc(doc.digest, doc.title)
		if err != nil {
			v.bad[doc.digest] = true
			f.ID = faultID(err)
			v.fault(err, f)
			continue
		}
		if doc.media == MediaTree {
			t, err := parseTree(b)
			if err != nil {
				f.ID, f.Message = "archive.tree", err.Error()
				v.add(f)
				continue
			}
			trees[doc.digest] = t
		}
	}
	v.checkRecords(trees)
	return trees
}

// checkRecords compares each record with its digest, its key with the stored
// preimages, and its outputs with its tree.
func (v *verifier) checkRecords(trees map[schemas.Digest]schemas.Tree) {
	preimages := map[schemas.Digest]bool{}
	for _, d := range v.config.Preimages {
		preimages[d] = true
	}
	for _, r := range v.config.Records {
		f := schemas.Finding{ID: "archive.record", Subject: r.Node, Blob: r.Digest, Stage: r.Record.Stage, Trial: r.Record.Trial, Path: r.Path}
		b, err := schemas.Encode(r.Record)
		if err == nil {
			err = validateDoc(schemas.StageRecordV1, b)
		}
		if got := schemas.DigestOf(b); err == nil && got != r.Digest {
			err = fmt.Errorf("the record hashes to %s, the config says %s", got, r.Digest)
		}
		if err != nil {
			f.Message = err.Error()
			v.add(f)
		}
		if r.Record.Key != "" && !preimages[r.Record.Key.Preimage()] {
			f.ID, f.Message = "archive.preimage", fmt.Sprintf("the preimage of its key %s is not in the run", r.Record.Key)
			v.add(f)
		}
		if t, ok := trees[r.Record.Tree]; ok {
			v.checkOutputs(r, t)
		}
	}
}

func (v *verifier) checkOutputs(r schemas.RunRecord, t schemas.Tree) {
	for _, o := range r.Record.Outputs {
		sub := schemas.SubTree(t.Entries, o.Path)
		got, err := schemas.TreeDigest(sub)
		if err == nil && got != o.Digest {
			err = fmt.Errorf("output %s hashes to %s, the record says %s", o.Name, got, o.Digest)
		}
		if n, size := schemas.SumEntries(sub); err == nil && (n != o.Files || size != o.Bytes) {
			err = fmt.Errorf("output %s has %d files of %d bytes, the record says %d of %d", o.Name, n, size, o.Files, o.Bytes)
		}
		if err != nil {
			v.add(schemas.Finding{ID: "archive.output", Subject: r.Node, Message: err.Error(), Blob: r.Record.Tree,
				Stage: r.Record.Stage, Trial: r.Record.Trial, Path: r.Path + "/" + o.Path})
		}
	}
}

// checkUnion makes the file list again from the trees and compares.
func (v *verifier) checkUnion(trees map[schemas.Digest]schemas.Tree) {
	mounts, err := mountsOf(*v.config)
	if err != nil || v.files == nil {
		return
	}
	for _, m := range mounts {
		if _, ok := trees[m.tree]; !ok {
			return // has a finding of its own
		}
	}
	f := schemas.Finding{ID: "archive.files", Subject: nameFiles, Blob: v.config.FileList, Path: nameFiles}
	union, err := fileList(mounts, func(m mount) (schemas.Tree, error) { return trees[m.tree], nil })
	if err != nil {
		f.Message = err.Error()
		v.add(f)
		return
	}
	if p, ok := firstDifference(union.Entries, v.files.Entries); ok {
		f.Message = fmt.Sprintf("the file list is not the union of the trees: it first differs at %s", p)
		f.Stage, f.Trial = v.owner(p)
		f.Paths = []string{p}
		v.add(f)
	}
}

func firstDifference(a, b []schemas.TreeEntry) (string, bool) {
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return b[i].Path, true
		case i >= len(b):
			return a[i].Path, true
		case !sameEntry(a[i], b[i]):
			return min(a[i].Path, b[i].Path), true
		}
	}
	return "", false
}

// checkReport compares the report with the config and the file list.
func (v *verifier) checkReport() {
	report := digestOf(layersOf(v.manifest, MediaReport)[0])
	list := digestOf(layersOf(v.manifest, MediaFiles)[0])
	fail := func(id, name string, blob schemas.Digest, format string, args ...any) {
		v.add(schemas.Finding{ID: id, Subject: name, Message: fmt.Sprintf(format, args...), Blob: blob, Path: name})
	}
	if v.config.Report != report || v.config.FileList != list {
		fail("archive.config", nameConfig, digestOf(v.manifest.Config), "it names another report or file list than the manifest")
	}
	if v.report == nil {
		return
	}
	if v.files == nil {
		return
	}
	n, size := schemas.SumEntries(v.files.Entries)
	if want := (schemas.FileSummary{Count: n, Bytes: size, Digest: v.files.Digest}); v.report.Files != want {
		fail("archive.report", nameReport, report, "its file summary is %+v, the file list gives %+v", v.report.Files, want)
	}
}
