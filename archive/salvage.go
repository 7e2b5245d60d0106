package archive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

// tagClaim says whose a tag is, with whatever stands beside it.
type tagClaim struct {
	tag   string
	run   schemas.Digest
	notes map[string]string
}

// tagText is a tag's annotation, wherever it stands.
var tagText = regexp.MustCompile(`"` + regexp.QuoteMeta(annotationTag) + `"\s*:\s*"([^"\\]*)"`)

// tornDescriptor is a run's descriptor as this package writes it, from its digest
// up to its tag: what comes after may be lost.
var tornDescriptor = regexp.MustCompile(`"digest":"(sha256:[0-9a-f]{64})","annotations":\{"` + regexp.QuoteMeta(annotationCreated) + `":"([^"\\{}]*)","` +
	regexp.QuoteMeta(annotationTag) + `":"([^"\\{}]*)"`)

// maxDescriptor is how far a descriptor is read for its end.
const maxDescriptor = 64 << 10

// tagClaims reads the descriptors of an index that is cut or mangled: every one
// that is whole, wherever it begins, and of torn ones those of which digest and tag
// stand together.
func tagClaims(old []byte) []tagClaim {
	var out []tagClaim
	for rest, budget := old, 16*int64(len(old)); budget > 0; {
		at := bytes.IndexByte(rest, '{')
		if at < 0 {
			break
		}
		rest = rest[at:]
		var d v1.Descriptor
		dec := json.NewDecoder(bytes.NewReader(rest[:min(len(rest), maxDescriptor)]))
		err := dec.Decode(&d)
		budget -= max(dec.InputOffset(), 1)
		if err != nil || d.Digest.Hex == "" {
			rest = rest[1:] // it is no descriptor; one may begin within
			continue
		}
		if tag := d.Annotations[annotationTag]; tag != "" {
			out = append(out, tagClaim{tag, digestOf(d), d.Annotations})
		}
		rest = rest[dec.InputOffset():]
	}
	for _, m := range tornDescriptor.FindAllSubmatch(old, -1) {
		out = append(out, tagClaim{string(m[3]), schemas.Digest(m[1]), map[string]string{annotationCreated: string(m[2])}})
	}
	return out
}

// salvageTags gives the tags that can be read in a damaged index back to the runs
// of a new one. What stands beside a tag must be what the run's manifest says: a
// piece that is missing may have brought together what does not belong together.
// lost are the names of which nobody can tell whose they are.
func salvageTags(index *v1.IndexManifest, old []byte) (saved int, lost []string) {
	notes := map[schemas.Digest]map[string]string{}
	for _, d := range index.Manifests {
		if d.ArtifactType == ArtifactType {
			notes[digestOf(d)] = d.Annotations
		}
	}
	owner, failed := map[string]schemas.Digest{}, map[string]bool{}
	for _, c := range tagClaims(old) {
		want, listed := notes[c.run]
		have, twice := owner[c.tag]
		if !listed || CheckTag(c.tag) != nil || !agree(c.notes, want) || twice && have != c.run {
			failed[c.tag] = true
			continue
		}
		owner[c.tag] = c.run
	}
	for _, m := range tagText.FindAllSubmatch(old, -1) {
		if tag := string(m[1]); tag != "" && (failed[tag] || owner[tag] == "") {
			lost = append(lost, tag)
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(owner)) {
		h, err := v1.NewHash(string(owner[tag]))
		if err != nil || failed[tag] || setTag(index, tag, h) != nil {
			continue
		}
		saved++
	}
	slices.Sort(lost)
	return saved, slices.Compact(lost)
}

// agree compares what two descriptors both say of a run.
func agree(a, b map[string]string) bool {
	for k, v := range a {
		if want, both := b[k]; both && want != v && k != annotationTag && k != annotationSequence {
			return false
		}
	}
	return true
}

func quoteAll(list []string) string {
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = fmt.Sprintf("%.100q", s)
	}
	return strings.Join(q, ", ")
}
