package durable

import (
	"fmt"
	"os"

	"github.com/gofrs/flock"
)

// Lock waits for the exclusive lock of the file path, made when missing, and
// returns the function that gives it back. It keeps processes and goroutines of
// one host apart; the operating system releases it when the holder dies, so it
// never has to be broken by hand. The file stays.
func Lock(path string) (unlock func() error, err error) {
	l, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	if err := l.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l.Unlock, nil
}

// RLock is Lock for holders that do not exclude each other, only those of Lock.
func RLock(path string) (unlock func() error, err error) {
	l, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	if err := l.RLock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l.Unlock, nil
}

// TryLock is Lock without waiting: ok is false when another holds it.
func TryLock(path string) (unlock func() error, ok bool, err error) {
	l, err := lockFile(path)
	if err != nil {
		return nil, false, err
	}
	ok, err = l.TryLock()
	if err != nil {
		return nil, false, fmt.Errorf("lock %s: %w", path, err)
	}
	if !ok {
		return nil, false, nil
	}
	return l.Unlock, true, nil
}

// lockFile refuses a link, which would lock another file, and a pipe, which would
// wait for ever.
func lockFile(path string) (*flock.Flock, error) {
	if err := CheckPlain(path); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if _, err := os.Stat(path); err != nil {
		if err := before(OpCreate, path); err != nil {
			return nil, err
		}
	}
	return flock.New(path, flock.SetPermissions(0o644)), nil
}
