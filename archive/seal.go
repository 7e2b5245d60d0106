package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"assay/schemas"
)

// sealing is a run on its way to its manifest.
type sealing struct {
	s      *Store
	run    schemas.Run
	layers []v1.Descriptor
	seen   map[schemas.Digest]bool
}

// Seal writes the run's manifest and then the index. Once it returns, the run
// is committed; before, it does not exist.
func (s *Store) Seal(ctx context.Context, req schemas.SealRequest) (schemas.Digest, error) {
	fail := func(err error) (schemas.Digest, error) {
		return "", fmt.Errorf("seal run %s: %w", req.Run.ID, err)
	}
	if err := checkSealRequest(req); err != nil {
		return fail(err)
	}
	x := &sealing{s: s, run: req.Run, seen: map[schemas.Digest]bool{}}
	mounts, err := mountsOf(x.run)
	if err != nil {
		return fail(err)
	}
	defer boundMemory(s.largeMounts(mounts))()
	list, err := x.files(ctx, mounts)
	if err != nil {
		return fail(err)
	}
	if err := x.documents(req, list); err != nil {
		return fail(err)
	}
	if err := x.content(ctx, list); err != nil {
		return fail(err)
	}
	desc, err := x.manifest()
	if err != nil {
		return fail(err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if err := s.updateIndex(func(idx *v1.IndexManifest) error { return addRun(idx, desc, req.Tag) }); err != nil {
		return fail(err)
	}
	return digestOf(desc), nil
}

func checkSealRequest(req schemas.SealRequest) error {
	r := req.Run
	switch {
	case r.ID == "" || r.Experiment == "" || r.Schema != schemas.RunV1:
		return fmt.Errorf("id %q, experiment %q and schema %q must be set", r.ID, r.Experiment, r.Schema)
	case r.Status == "" || r.EndedAt.IsZero():
		return errors.New("status and end must be set")
	case req.Report == nil:
		return errors.New("no function makes its report")
	case len(req.Experiment) == 0:
		return errors.New("the effective experiment is missing")
	}
	if req.Tag != "" {
		return CheckTag(req.Tag)
	}
	return nil
}

// files makes the file list from the trees of stages and services, and packs it
// anew when the manifest would have too many layers.
func (x *sealing) files(ctx context.Context, mounts []mount) (schemas.Tree, error) {
	list, err := fileList(mounts, func(m mount, each func(schemas.TreeEntry) error) (schemas.Tree, error) {
		return x.s.eachEntry(m.tree, each)
	})
	if err != nil {
		return list, err
	}
	if fixedLayers+len(list.Blobs) > layerLimit {
		if list, err = x.s.repack(ctx, list); err != nil {
			return list, err
		}
		_, err = checkTreeShape(list)
	}
	return list, err
}

// fixedLayers leaves room for documents, which are bundled when they are many.
const fixedLayers = 64

// documents stores report, experiment and file list, and lists the documents of
// the stages. It fills in what the config says of them.
func (x *sealing) documents(req schemas.SealRequest, list schemas.Tree) error {
	files, bytes := schemas.SumEntries(list.Entries)
	report, err := req.Report(schemas.FileSummary{Count: files, Bytes: bytes, Digest: list.Digest})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	reportBytes, err := encodeReport(report)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, doc := range []struct {
		media, title string
		data         []byte
	}{
		{MediaReport, nameReport, reportBytes},
		{MediaExperiment, nameExperiment, req.Experiment},
		{MediaSource, nameSource, req.Source},
	} {
		if doc.media == MediaSource && len(doc.data) == 0 {
			continue
		}
		d, err := x.s.putBytes(doc.data)
		if err != nil {
			return err
		}
		if doc.media == MediaReport {
			x.run.Report = d
		}
		if err := x.add(doc.media, d, doc.title); err != nil {
			return err
		}
	}
	if x.run.FileList, err = x.s.putTreeBytes(list); err != nil {
		return fmt.Errorf("file list: %w", err)
	}
	if err := x.add(MediaFiles, x.run.FileList, nameFiles); err != nil {
		return err
	}
	return x.stageDocuments(len(list.Blobs))
}

// encodeReport is for people too: indented, and in the order of the type.
func encodeReport(report schemas.Report) ([]byte, error) {
	b, err := schemas.Encode(report)
	if err != nil {
		return nil, err
	}
	if err := validateDoc(schemas.ReportV1, b); err != nil {
		return nil, err
	}
	var filled schemas.Report
	if err := json.Unmarshal(b, &filled); err != nil {
		return nil, err
	}
	b, err = json.MarshalIndent(filled, "", "  ")
	return append(b, '\n'), err
}

// stageDocuments lists records, preimages and trees: each a layer, or, when
// they are too many, bundled.
func (x *sealing) stageDocuments(blobs int) error {
	docs := stageDocs(x.run)
	if len(x.layers)+len(docs)+blobs > layerLimit {
		bundles, err := x.s.bundle(docs)
		if err != nil {
			return err
		}
		docs = bundles
	}
	for _, d := range docs {
		if err := x.add(d.media, d.digest, d.title); err != nil {
			return err
		}
	}
	return nil
}

// docRef is a document of a stage, or a bundle of them.
type docRef struct {
	media  string
	digest schemas.Digest
	title  string
}

// stageDocs lists the documents that a run's config refers to, once each: in
// the config's order for records, by digest for the rest.
func stageDocs(run schemas.Run) []docRef {
	var out []docRef
	seen := map[schemas.Digest]bool{}
	add := func(media string, d schemas.Digest, title string) {
		if d != "" && !seen[d] {
			seen[d] = true
			out = append(out, docRef{media, d, title})
		}
	}
	for _, r := range run.Records {
		add(MediaRecord, r.Digest, dirRecords+"/"+r.Digest.Hex()+".json")
	}
	preimages := append([]schemas.Digest(nil), run.Preimages...)
	sort.Slice(preimages, func(i, j int) bool { return preimages[i] < preimages[j] })
	for _, d := range preimages {
		add(MediaPreimage, d, dirPreimages+"/"+d.Hex()+".json")
	}
	var trees []schemas.Digest
	for _, r := range run.Records {
		trees = append(trees, r.Record.Tree)
	}
	for _, s := range run.Services {
		trees = append(trees, s.Tree)
	}
	sort.Slice(trees, func(i, j int) bool { return trees[i] < trees[j] })
	for _, d := range trees {
		add(MediaTree, d, dirTrees+"/"+d.Hex()+".json")
	}
	return out
}

// content lists the blobs of the files.
func (x *sealing) content(ctx context.Context, list schemas.Tree) error {
	for _, b := range list.Blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.add(b.MediaType, b.Digest, ""); err != nil {
			return err
		}
		if got := x.layers[len(x.layers)-1]; digestOf(got) == b.Digest && got.Size != b.Size {
			return &CorruptError{Blob: b.Digest, Err: fmt.Errorf("it has %d bytes, want %d", got.Size, b.Size)}
		}
	}
	return nil
}

// add lists a stored blob as a layer, once.
func (x *sealing) add(media string, d schemas.Digest, title string) error {
	if x.seen[d] {
		return nil
	}
	size, err := x.s.blobSize(d)
	if err != nil {
		return err
	}
	desc, err := descriptor(media, d, size, title)
	if err != nil {
		return err
	}
	x.seen[d] = true
	x.layers = append(x.layers, desc)
	return nil
}

// manifest stores config and manifest and returns the descriptor for the index.
func (x *sealing) manifest() (v1.Descriptor, error) {
	none := v1.Descriptor{}
	config, err := schemas.Encode(x.run)
	if err != nil {
		return none, fmt.Errorf("config: %w", err)
	}
	if err := validateDoc(schemas.RunV1, config); err != nil {
		return none, fmt.Errorf("config: %w", err)
	}
	cd, err := x.s.putBytes(config)
	if err != nil {
		return none, err
	}
	configDesc, err := descriptor(MediaConfig, cd, int64(len(config)), "")
	if err != nil {
		return none, err
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: ArtifactType,
		Config: configDesc, Layers: x.layers, Annotations: runAnnotations(x.run)}
	b, err := json.Marshal(m)
	if err != nil {
		return none, err
	}
	if _, err := parseManifest(b); err != nil {
		return none, err
	}
	d, err := x.s.putBytes(b)
	if err != nil {
		return none, err
	}
	desc, err := descriptor(mediaManifest, d, int64(len(b)), "")
	if err != nil {
		return none, err
	}
	desc.ArtifactType, desc.Annotations = ArtifactType, runAnnotations(x.run)
	return desc, nil
}

func runAnnotations(run schemas.Run) map[string]string {
	return map[string]string{
		annotationRun:        run.ID,
		annotationExperiment: run.Experiment,
		annotationStatus:     string(run.Status),
		annotationCreated:    run.EndedAt.UTC().Format(time.RFC3339Nano),
	}
}
