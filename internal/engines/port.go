package engines

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// taken are the ports of this process's services. A port is only free until
// somebody binds it, so two services that start at the same time must not be
// given the same one: each would take the other's answers for its own.
var taken = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// choosePort returns a port of the loopback interface that is free now: fixed, or
// any for 0. It stays taken until releasePort.
func choosePort(fixed int) (int, error) {
	taken.Lock()
	defer taken.Unlock()
	var held []net.Listener // ports not to be offered again
	defer func() {
		for _, ln := range held {
			ln.Close()
		}
	}()
	for range 100 {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(fixed)))
		if err != nil && fixed != 0 {
			return 0, fmt.Errorf("port %d is not free: end what uses it, or leave port out to have a free one chosen: %w", fixed, err)
		} else if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, ln)
		port := ln.Addr().(*net.TCPAddr).Port
		if !taken.ports[port] {
			taken.ports[port] = true
			return port, nil
		}
		if fixed != 0 {
			return 0, fmt.Errorf("port %d belongs to another service of this run: give each its own, or leave port out", fixed)
		}
	}
	return 0, errors.New("find a free port: none in a hundred tries")
}

func releasePort(port int) {
	taken.Lock()
	defer taken.Unlock()
	delete(taken.ports, port)
}
