package aegaeon

import (
	"io"
	"os"

	"assay/internal/durable"
	"assay/internal/engines/aegaeon"
	"assay/schemas"
)

// maxFile is more than any configuration has; one byte more is read, and refused.
const maxFile = 4 << 20

// Read is Check of a file.
func Read(subject, path string) Result {
	b, err := readFile(path)
	if err != nil {
		return Result{Findings: []schemas.Finding{{ID: "aegaeon.read", Severity: schemas.SeverityUnknown, Subject: subject, File: path, Message: err.Error(), Remedy: "check the file"}}}
	}
	return Check(subject, path, b)
}

func readFile(path string) ([]byte, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Paths checks that the folders of checkpoints are there; instead names the folders
// of those that are started with another than the file says.
func Paths(subject, file string, config aegaeon.Config, instead map[string]string) []schemas.Finding {
	c := &checker{subject: subject, file: file}
	for i, m := range config.Models {
		path := m.Path
		if other := instead[m.Name]; other != "" {
			path = other
		}
		switch info, err := os.Stat(path); {
		case err != nil:
			c.fail("aegaeon.model-path", "name the folder of the checkpoint, or fetch it", "models[%d] %s: %v: its weights are downloaded", i, m.Name, err)
		case !info.IsDir():
			c.fail("aegaeon.model-path", "name the folder of the checkpoint", "models[%d] %s: %s is no folder", i, m.Name, path)
		default:
			c.add("aegaeon.model-path", schemas.SeverityPass, "", "the folder of %s is there", m.Name)
		}
	}
	return c.findings
}
