package ports

import (
	"assay/preflight"
	"assay/schemas"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	entry := func(id string, severity schemas.Severity, checks, remedy string) preflight.Entry {
		return preflight.Entry{ID: id, Subject: "port", Severity: severity, Checks: checks, Remedy: remedy, When: preflight.Before, Rule: "a service can listen where it is told to"}
	}
	taken := entry("port.taken", schemas.SeverityError, "nothing listens on the port", "end the program that listens there, or give another port")
	taken.Pitfalls = []int{43}
	return []preflight.Entry{
		entry("port.free", schemas.SeverityUnknown, "the port can be listened on at 127.0.0.1; unknown where it cannot be tried", "check the network of this machine"),
		taken,
		entry("port.invalid", schemas.SeverityError, "the port is a number that TCP has", "give a whole number from 1 to 65535"),
		entry("port.permission", schemas.SeverityError, "this user may listen on the port", "give a port above 1023"),
	}
}
