package ports

import (
	"net"
	"strconv"
	"testing"

	"assay/schemas"
)

func TestCheck(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if f := Check("s", port); f.ID != "port.taken" || f.Severity != schemas.SeverityError || f.Remedy == "" {
		t.Errorf("a port in use: %+v", f)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if f := Check("s", port); f.Severity != schemas.SeverityPass {
		t.Errorf("a free port: %+v", f)
	}
	// It was let go: it can be had.
	again, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatalf("the check kept the port: %v", err)
	}
	again.Close()
	for _, bad := range []string{"", "http", "-1", "65536", "80.5"} {
		if f := Check("s", bad); f.ID != "port.invalid" || f.Severity != schemas.SeverityError {
			t.Errorf("%q: %+v", bad, f)
		}
	}
}
