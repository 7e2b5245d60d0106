package remote

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"assay/internal/durable"
	"assay/schemas"
)

// sessions remembers, in a folder, where uploads were going on when this process
// ended. A nil one remembers nothing.
type sessions struct{ dir string }

const maxSessionBytes = 16 << 10

type sessionDoc struct {
	Repository string         `json:"repository"`
	Blob       schemas.Digest `json:"blob"`
	Location   string         `json:"location"` // may let anyone go on with the upload: mode 0600
}

func (s *sessions) path(repo string, d schemas.Digest) string {
	return filepath.Join(s.dir, schemas.DigestOf([]byte(repo+"\n"+string(d))).Hex()+".json")
}

// load returns where the upload of a blob went on, "" for none. What cannot be
// read is no session: the blob is sent from the beginning.
func (s *sessions) load(repo string, d schemas.Digest) string {
	if s == nil {
		return ""
	}
	info, err := os.Stat(s.path(repo, d))
	if err != nil || info.Size() > maxSessionBytes {
		return ""
	}
	b, err := os.ReadFile(s.path(repo, d))
	var doc sessionDoc
	if err != nil || json.Unmarshal(b, &doc) != nil || doc.Repository != repo || doc.Blob != d {
		return ""
	}
	return doc.Location
}

func (s *sessions) save(repo string, d schemas.Digest, at string) error {
	if s == nil {
		return nil
	}
	b, err := json.Marshal(sessionDoc{repo, d, at})
	if err != nil {
		return err
	}
	if err := durable.MkdirAll(s.dir); err != nil {
		return err
	}
	return durable.WriteFile(s.path(repo, d), b, 0o600)
}

func (s *sessions) drop(repo string, d schemas.Digest) error {
	if s == nil {
		return nil
	}
	err := durable.Remove(s.path(repo, d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// note writes the session down. It only saves time later, so a folder that
// cannot be written does not stop the upload.
func (u *upload) note(at string) { _ = u.sessions.save(u.c.repo.Name(), u.blob.Digest, at) }

func (u *upload) forget() { _ = u.sessions.drop(u.c.repo.Name(), u.blob.Digest) }

// ours says that a remembered session is on the registry itself: a file in the
// store must not lead the bytes of a run to another host.
func (u *upload) ours(at string) bool {
	p, err := url.Parse(at)
	return err == nil && p.Host == u.c.repo.RegistryStr()
}
