package aegaeon

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"assay/internal/durable"
	"assay/internal/engines/aegaeon"
	"assay/internal/serving"
	"assay/schemas"
)

const (
	maxProfileBytes = 1 << 20
	maxProfiles     = 2000 // files of a folder
	maxLatencyS     = 1e5
	usablePoints    = 3 // that determine a fit
	remedyProfiles  = "collect profiles of the model on this device, or name their folder with profile"
)

var pointName = regexp.MustCompile(`^i([0-9]{1,7})b([0-9]{1,7})\.json$`)

// Profiles checks the folders MODEL/DEVICE below root, of latency profiles, that the
// engine will look for: for every model on every device of the configuration, or on
// the GPU, whose product name is empty where it is not known.
func Profiles(subject, file, root string, config aegaeon.Config, gpu string) []schemas.Finding {
	c := &checker{subject: subject, file: file}
	devices := config.Devices
	if len(devices) == 0 {
		if gpu == "" {
			c.add("aegaeon.profile-missing", schemas.SeverityUnknown, "list the device, or record the facts of the host that it will run on", "the name of the device is not known: its profiles cannot be looked for")
			return c.findings
		}
		devices = []aegaeon.Device{{Name: gpu}}
	}
	for _, d := range devices {
		c.profileDevice(d, gpu)
		for _, m := range config.Models {
			c.profile(root, m, d, gpu)
		}
	}
	return c.findings
}

// Alias is the name of a model's folder of profiles where none is given.
func Alias(name string) string {
	last := name[strings.LastIndex(name, "/")+1:]
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(last), "_"), "_")
}

func (c *checker) profile(root string, m aegaeon.Entry, d aegaeon.Device, gpu string) {
	models := []string{Alias(m.Name), m.Name}
	if m.Profile != "" {
		models = []string{m.Profile}
	}
	var tried []string
	for _, model := range models {
		for _, device := range []string{d.Profile, gpu, d.Name} {
			name := filepath.Join(model, device)
			if device == "" || !filepath.IsLocal(name) || slices.Contains(tried, name) {
				continue
			}
			tried = append(tried, name)
			if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.IsDir() {
				c.folder(filepath.Join(root, name), m.Name)
				return
			}
		}
	}
	c.fail("aegaeon.profile-missing", remedyProfiles, "model %s has no folder of profiles below %s: looked for %s", m.Name, root, strings.Join(tried, ", "))
}

// folder reads every file of a folder.
func (c *checker) folder(dir, model string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > maxProfiles {
		c.add("aegaeon.profile-missing", schemas.SeverityUnknown, "check the folder", "the profiles of %s in %s cannot be read: %d files, %v", model, dir, len(entries), err)
		return
	}
	var points []serving.Point
	broken := false
	for _, e := range entries {
		name := pointName.FindStringSubmatch(e.Name())
		if name == nil {
			continue
		}
		p, err := readPoint(filepath.Join(dir, e.Name()))
		if err != nil {
			broken = true
			c.fail("aegaeon.profile-file", "measure the point again, or remove the file", "profile %s: %v", filepath.Join(dir, e.Name()), err)
			continue
		}
		p.Index = 1 // trains the fit
		p.Input, _ = strconv.Atoi(name[1])
		p.Batch, _ = strconv.Atoi(name[2])
		points = append(points, p)
	}
	if len(points) < usablePoints {
		c.fail("aegaeon.profile-missing", remedyProfiles, "model %s: %s has %d usable points, a fit needs %d at least", model, dir, len(points), usablePoints)
		return
	}
	if _, err := serving.FitPoints(points); err != nil {
		c.fail("aegaeon.profile-missing", remedyProfiles, "model %s: the points in %s determine no fit: %v", model, dir, err)
	} else if !broken {
		c.add("aegaeon.profile-file", schemas.SeverityPass, "", "model %s has %d usable points", model, len(points))
	}
}

func readPoint(path string) (serving.Point, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return serving.Point{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProfileBytes+1))
	if err != nil {
		return serving.Point{}, err
	}
	return parsePoint(b)
}

// parsePoint reads the samples of a point. The engine takes their mean without the
// least and the greatest.
func parsePoint(b []byte) (p serving.Point, err error) {
	var doc struct {
		Prefill []float64 `json:"prefill_latencies"`
		Decode  []float64 `json:"decode_latencies"`
	}
	if len(b) > maxProfileBytes {
		return p, fmt.Errorf("larger than %d bytes", maxProfileBytes)
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return p, fmt.Errorf("not a latency profile: %w", err)
	}
	if p.PrefillS, err = trimmed(doc.Prefill); err != nil {
		return p, fmt.Errorf("prefill_latencies: %w", err)
	}
	if p.DecodeS, err = trimmed(doc.Decode); err != nil {
		return p, fmt.Errorf("decode_latencies: %w", err)
	}
	return p, nil
}

func trimmed(samples []float64) (float64, error) {
	if len(samples) < 3 {
		return 0, fmt.Errorf("%d samples: want 3 or more, as the least and the greatest are dropped", len(samples))
	}
	sum, low, high := 0.0, samples[0], samples[0]
	for i, s := range samples {
		if !(s >= 0 && s <= maxLatencyS) {
			return 0, fmt.Errorf("sample %d is %s s, which is no latency", i, schemas.Decimal(s))
		}
		sum, low, high = sum+s, min(low, s), max(high, s)
	}
	return (sum - low - high) / float64(len(samples)-2), nil
}

var deviceToken = regexp.MustCompile(`[a-z]+[0-9]+[a-z0-9]*`)

// profileDevice holds the name of a device's profiles against the GPU: a collector
// labels its folder by the first GPU that it sees.
func (c *checker) profileDevice(d aegaeon.Device, gpu string) {
	alias := d.Profile
	if alias == "" {
		alias = d.Name
	}
	if gpu == "" {
		c.add("aegaeon.profile-device", schemas.SeverityUnknown, "record the facts of the host that it will run on", "the GPU is not known: whether profiles of %q are of it cannot be told", alias)
		return
	}
	have := deviceToken.FindAllString(strings.ToLower(gpu), -1)
	want := deviceToken.FindAllString(strings.ToLower(alias), -1)
	for _, w := range want {
		if slices.Contains(have, w) {
			c.add("aegaeon.profile-device", schemas.SeverityPass, "", "profiles of %s are of the GPU, %s", alias, gpu)
			return
		}
	}
	if len(want) == 0 || len(have) == 0 {
		c.warn("aegaeon.profile-device", "see that they were made on it", "profiles of %q: the name does not say whether they are of the GPU, %q", alias, gpu)
		return
	}
	c.fail("aegaeon.profile-device", "use profiles that were made on this GPU", "profiles of %q are of another device than the GPU, %q", alias, gpu)
}
