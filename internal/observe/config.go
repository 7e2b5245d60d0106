package observe

import (
	"slices"
	"time"

	"assay/schemas"
)

// minInterval is the shortest time between two looks.
const minInterval = 100 * time.Millisecond

// Config says what is looked at.
type Config struct {
	Metrics, Snapshot, Events, Host, GPU       string
	MetricsPath, SnapshotPath, EventsPath      string
	GPUPath                                    string
	MetricsInterval, GPUInterval, HostInterval time.Duration
	Profile                                    bool
	ProfileTimeout, Timeout                    time.Duration
	Resets                                     []Reset
	Require                                    []string
}

// Reset is a request that empties a cache.
type Reset struct {
	Method, Path string
	Status       int
	Fail         bool // a failed one fails the stage
}

// ConfigOf reads the table "observe" of a stage, nil for none; keys that are
// absent take their defaults.
func ConfigOf(table schemas.Settings) Config {
	set := schemas.Settings(schemas.ApplyDefaults(schemas.ObserveField().Fields, table))
	interval := func(key string) time.Duration { return max(set.Duration(key), minInterval) }
	c := Config{
		Metrics: set.Text("metrics"), Snapshot: set.Text("snapshot"), Events: set.Text("events"), Host: set.Text("host"), GPU: set.Text("gpu"),
		MetricsPath: set.Text("metrics_path"), SnapshotPath: set.Text("snapshot_path"), EventsPath: set.Text("events_path"), GPUPath: set.Text("gpu_path"),
		MetricsInterval: interval("metrics_interval"), GPUInterval: interval("gpu_interval"), HostInterval: interval("host_interval"),
		Profile: set.Bool("profile"), ProfileTimeout: set.Duration("profile_timeout"), Timeout: max(set.Duration("timeout"), minInterval),
		Require: set.List("require"),
	}
	for _, r := range set.Tables("reset") {
		c.Resets = append(c.Resets, Reset{r.Text("method"), r.Text("path"), r.Int("status"), r.Text("on_fail") != "mark"})
	}
	return c
}

// requires says whether the stage fails without a source.
func (c Config) requires(source string) bool { return slices.Contains(c.Require, source) }
