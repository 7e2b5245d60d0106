package archive

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"assay/internal/durable"
)

// otherToken changes one part of this process's token: 0 host, 1 boot, 2 PID
// namespace, 3 PID, 4 start.
func otherToken(change map[int]string) string {
	p := strings.Split(durable.Self(), ".")
	for i, v := range change {
		p[i] = v
	}
	return strings.Join(p, ".")
}

func TestLeaseStates(t *testing.T) {
	s := newStore(t)
	for name, c := range map[string]struct {
		token  string
		settle bool
		want   string
	}{
		"this process":                      {durable.Self(), true, LeaseActive},
		"a process that is gone":            {otherToken(map[int]string{3: "4194304"}), true, LeaseDead},
		"the same PID, another process":     {otherToken(map[int]string{4: "1"}), true, LeaseDead},
		"before the last boot":              {otherToken(map[int]string{1: "00000000"}), true, LeaseDead},
		"another host":                      {otherToken(map[int]string{0: "00000000", 1: "00000000"}), true, LeaseUnknown},
		"another container, its lock free":  {otherToken(map[int]string{2: "00000000"}), true, LeaseDead},
		"another container, just beginning": {otherToken(map[int]string{2: "00000000"}), false, LeaseActive},
		"no token":                          {"nonsense", true, LeaseUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(s.LeaseDir(), "run."+c.token+"-1.json")
			b, err := json.Marshal(LeaseInfo{Run: "run", Holder: c.token, PID: 7, Started: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(path)
			if c.settle {
				old := time.Now().Add(-2 * leaseSettle)
				if err := os.Chtimes(path, old, old); err != nil {
					t.Fatal(err)
				}
			}
			list, err := s.Leases()
			if err != nil || len(list) != 1 || list[0].State != c.want || list[0].Run != "run" {
				t.Fatalf("%+v, %v, want %s", list, err, c.want)
			}
			// Taking another lease removes the dead, and only those.
			release, err := s.Lease(context.Background(), "mine")
			if err != nil {
				t.Fatal(err)
			}
			if err := release(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(path); (err != nil) != (c.want == LeaseDead) {
				t.Errorf("lease file afterwards: %v", err)
			}
		})
	}
}

// A lock held in another container is seen, since it is the kernel's.
func TestLeaseOfAnotherContainer(t *testing.T) {
	s := newStore(t)
	token := otherToken(map[int]string{2: "00000000"})
	path := filepath.Join(s.LeaseDir(), "run."+token+"-1.json")
	b, err := json.Marshal(LeaseInfo{Run: "run", Holder: token})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	unlock, ok, err := durable.TryLock(path)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	old := time.Now().Add(-2 * leaseSettle)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Leases(); err != nil || list[0].State != LeaseActive {
		t.Errorf("%+v, %v, want active", list, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Leases(); err != nil || list[0].State != LeaseDead {
		t.Errorf("%+v, %v, want dead", list, err)
	}
}

func TestLeaseRefusesNames(t *testing.T) {
	s := newStore(t)
	for _, id := range []string{"", "a/b", "../x", "a\x00"} {
		if release, err := s.Lease(context.Background(), id); err == nil {
			t.Errorf("lease of %q", id)
			_ = release()
		}
	}
}

// A lease that nobody can read holds gc back, and is told of.
func TestUnknownLeaseHoldsGCBack(t *testing.T) {
	s := newStore(t)
	d := sealRun(t, s, "r1", "", tinyStages())
	path := filepath.Join(s.LeaseDir(), "r9.json")
	if err := os.WriteFile(path, []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-10 * DefaultGrace)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	remove(t, s, d)
	age(t, s)
	if r := collect(t, s, GCOptions{Apply: true}); len(r.Garbage) != 0 || len(r.Leases) != 1 || r.Leases[0].State != LeaseUnknown || r.Leases[0].Run != "r9" {
		t.Errorf("%d deleted, leases %+v", len(r.Garbage), r.Leases)
	}
}
