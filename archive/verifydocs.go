package archive

import (
	"errors"
	"fmt"
	"io"
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
	v.stageDocuments()
	v.checkReport()
	v.checkConsistency(experiment)
}

// layer reads a document that is a layer or the config, and adds a finding when
// its bytes are not what its descriptor says.
func (v *verifier) layer(d v1.Descriptor, title string) ([]byte, bool) {
	digest := digestOf(d)
	b, err := v.doc(digest, title)
	return b, v.layerRead(d, title, int64(len(b)), err)
}

// layerRead says whether n bytes, read without or with an error, are what the
// descriptor of the layer says.
func (v *verifier) layerRead(d v1.Descriptor, title string, n int64, err error) bool {
	digest := digestOf(d)
	if err == nil && n != d.Size {
		err = fmt.Errorf("it has %d bytes, the manifest says %d", n, d.Size)
	}
	if err != nil {
		v.bad[digest] = true
		stage, trial := v.docOwner(digest)
		v.fault(err, schemas.Finding{ID: faultID(err), Subject: title, Blob: digest, Stage: stage, Trial: trial, Path: title})
		return false
	}
	v.count(d.Size)
	return true
}

// longLayer is layer for a document that is read as a stream: use may be nil, and
// its error is another matter than the bytes.
func (v *verifier) longLayer(d v1.Descriptor, title string, use func(io.Reader) error) (ok bool, useErr error) {
	in, err := v.openDoc(digestOf(d), title)
	n := int64(0)
	if err == nil {
		err = drainDoc(in, func(r io.Reader) error {
			c := &counter{r: r}
			if use != nil {
				useErr = use(c)
			}
			_, err := io.Copy(io.Discard, c)
			n = c.n
			return err
		})
	}
	return v.layerRead(d, title, n, err), useErr
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
	ok, err := v.longLayer(d, nameFiles, func(r io.Reader) (err error) {
		list, err = collectTree(r, d.Size)
		return err
	})
	switch {
	case !ok:
	case err != nil:
		v.add(schemas.Finding{ID: "archive.files", Subject: nameFiles, Message: err.Error(), Blob: digestOf(d), Path: nameFiles})
	default:
		v.files = &list
	}
}

// stageLayers checks the bytes of every record, preimage, tree and bundle layer,
// whether or not the config can be read.
func (v *verifier) stageLayers() {
	for media, dir := range map[string]string{MediaRecord: dirRecords, MediaPreimage: dirPreimages, MediaTree: dirTrees} {
		for _, d := range layersOf(v.manifest, media) {
			title := dir + "/" + digestOf(d).Hex() + ".json"
			if media == MediaTree {
				_, _ = v.longLayer(d, title, nil)
				continue
			}
			v.layer(d, title)
		}
	}
}

// stageDocuments checks what the records say, every tree, and that the file list
// is the union of the trees.
func (v *verifier) stageDocuments() {
	trees := v.newTreeVerifier()
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
		if doc.media == MediaTree {
			trees.read(doc, f)
		} else if _, err := v.doc(doc.digest, doc.title); err != nil {
			v.bad[doc.digest] = true
			f.ID = faultID(err)
			v.fault(err, f)
		}
	}
	v.checkRecords()
	trees.end()
}

// checkRecords compares each record with its digest and its key with the stored
// preimages.
func (v *verifier) checkRecords() {
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
	}
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
