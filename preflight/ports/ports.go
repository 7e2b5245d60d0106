// Package ports checks that TCP ports are free on loopback.
package ports

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"assay/schemas"
)

// Check tries to listen on 127.0.0.1 at the port, given as text, and lets go at
// once. Port 0 asks the system for a free one and always passes.
func Check(subject, port string) schemas.Finding {
	f := schemas.Finding{ID: "port.free", Severity: schemas.SeverityError, Subject: subject}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		f.ID, f.Message, f.Remedy = "port.invalid", fmt.Sprintf("%q is no TCP port", port), "give a whole number from 1 to 65535"
		return f
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		f.ID, f.Message, f.Remedy = "port.taken", fmt.Sprintf("port %d is in use on 127.0.0.1", n), "end the program that listens there, or give another port"
	case errors.Is(err, syscall.EACCES):
		f.ID, f.Message, f.Remedy = "port.permission", fmt.Sprintf("port %d may not be used by this user", n), "give a port above 1023"
	case err != nil:
		f.Severity, f.Message, f.Remedy = schemas.SeverityUnknown, fmt.Sprintf("port %d cannot be tried: %v", n, err), "check the network of this machine"
	default:
		f.Severity, f.Message = schemas.SeverityPass, fmt.Sprintf("port %d is free on 127.0.0.1", n)
		if err := l.Close(); err != nil {
			f.Severity, f.Message = schemas.SeverityUnknown, fmt.Sprintf("port %d cannot be let go: %v", n, err)
		}
	}
	return f
}
