package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/mem"

	"assay/internal/supervise"
	"assay/schemas"
)

// probeLimit bounds a vendor's tool: some hang when a driver does.
const probeLimit = 15 * time.Second

// environment describes this host. What cannot be learnt stays empty, and for
// accelerators says why.
func environment(ctx context.Context, argv []string) schemas.Environment {
	env := schemas.Environment{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Tool: toolIdentity(), CommandLine: append([]string{"assay"}, argv...)}
	env.Host, _ = os.Hostname()
	env.Kernel, _ = host.KernelVersionWithContext(ctx)
	if info, err := cpu.InfoWithContext(ctx); err == nil && len(info) > 0 {
		env.CPUModel = info[0].ModelName
	}
	if m, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		env.MemoryBytes = int64(m.Total)
	}
	env.Accelerators, env.AcceleratorsUnknown = accelerators(ctx)
	return env
}

// accelerators asks the vendors' tools that are installed. Without one nothing
// is known: a device may be there all the same.
func accelerators(ctx context.Context) ([]schemas.Accelerator, string) {
	list := []schemas.Accelerator{}
	var unknown []string
	for _, tool := range []struct {
		argv  []string
		parse func([]byte) ([]schemas.Accelerator, error)
	}{
		{[]string{"nvidia-smi", "--query-gpu=index,name,memory.total,driver_version", "--format=csv,noheader"}, parseNvidia},
		{[]string{"npu-smi", "info", "-m"}, parseNPU},
	} {
		out, err := probe(ctx, tool.argv)
		var found []schemas.Accelerator
		if err == nil {
			found, err = tool.parse(out)
		}
		if err != nil {
			unknown = append(unknown, err.Error())
			continue
		}
		list = append(list, found...)
	}
	if len(list) > 0 || len(unknown) < 2 {
		return list, ""
	}
	return list, strings.Join(unknown, "; ")
}

// probe runs a tool and returns what it prints.
func probe(ctx context.Context, argv []string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, fmt.Errorf("no answer within %s", probeLimit))
	defer cancel()
	var out bytes.Buffer
	code, err := supervise.Run(ctx, supervise.Spec{Argv: argv, Env: os.Environ(), Stdout: &out, Grace: time.Second})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is not installed", argv[0])
	case err != nil:
		return nil, err
	case code != 0:
		return nil, fmt.Errorf("%s ended with exit code %d", argv[0], code)
	}
	return out.Bytes(), nil
}

func parseNvidia(out []byte) ([]schemas.Accelerator, error) {
	r := csv.NewReader(bytes.NewReader(out))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = 4
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi: %w", err)
	}
	var list []schemas.Accelerator
	for _, row := range rows {
		index, err := strconv.Atoi(row[0])
		if err != nil {
			return nil, fmt.Errorf("nvidia-smi: index %q: %w", row[0], err)
		}
		list = append(list, schemas.Accelerator{Index: index, Name: row[1], Memory: row[2], Driver: row[3]})
	}
	return list, nil
}

// npuRow is a line of `npu-smi info -m`: NPU ID, chip ID, logic ID ("-" for a
// controller, which computes nothing), chip name.
var npuRow = regexp.MustCompile(`^\s*(\d+)\s+(\d+)\s+(\d+|-)\s+(\S.*?)\s*$`)

func parseNPU(out []byte) ([]schemas.Accelerator, error) {
	var list []schemas.Accelerator
	for line := range strings.Lines(string(out)) {
		m := npuRow.FindStringSubmatch(line)
		if m == nil || m[3] == "-" {
			continue
		}
		index, err := strconv.Atoi(m[3])
		if err != nil {
			return nil, fmt.Errorf("npu-smi: %w", err)
		}
		list = append(list, schemas.Accelerator{Index: index, Name: m[4]})
	}
	return list, nil
}
