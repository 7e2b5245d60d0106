package remote

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"assay/schemas"
)

// Scheme is what a reference to a registry begins with.
const Scheme = "oci://"

// IsReference says whether ref names something in a registry.
func IsReference(ref string) bool { return strings.HasPrefix(ref, Scheme) }

var (
	tagGrammar  = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	ownTags     = regexp.MustCompile(`^(run|sha256)-[0-9a-f]{64}$`)
	repoGrammar = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
)

// Reference is a place in a registry.
type Reference struct {
	repo   name.Repository
	Tag    string         // "" for none
	Digest schemas.Digest // "" for none
}

// Parse reads oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]. The host is
// always written: there is no registry by default.
func Parse(ref string) (Reference, error) {
	fail := func(err error) (Reference, error) {
		return Reference{}, fmt.Errorf("reference %q: %w: want oci://HOST[:PORT]/REPOSITORY[:TAG][@sha256:HEX]", hideUser(ref), err)
	}
	rest, ok := strings.CutPrefix(ref, Scheme)
	if !ok {
		return fail(errors.New("it does not begin with " + Scheme))
	}
	if strings.ContainsAny(rest, "?# \t\n") {
		return fail(errors.New("a query, a fragment or a space has no place in it"))
	}
	host, path, ok := strings.Cut(rest, "/")
	if !ok || host == "" || path == "" {
		return fail(errors.New("host or repository is missing"))
	}
	if strings.Contains(host, "@") {
		return fail(errors.New("credentials have no place in it: `docker login` or `podman login` keeps them"))
	}
	if _, port, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fail(fmt.Errorf("%q is no port", port))
		}
	}
	var out Reference
	if before, digest, has := strings.Cut(path, "@"); has {
		d, err := schemas.ParseDigest(digest)
		if err != nil {
			return fail(err)
		}
		path, out.Digest = before, d
	}
	if before, tag, has := strings.Cut(path, ":"); has {
		if !tagGrammar.MatchString(tag) {
			return fail(fmt.Errorf("%q is no tag", tag))
		}
		path, out.Tag = before, tag
	}
	if !repoGrammar.MatchString(path) {
		return fail(fmt.Errorf("%q is no repository: lower case letters, digits, '.', '_', '-' and '/' between names", path))
	}
	repo, err := name.NewRepository(host+"/"+path, name.StrictValidation)
	if err != nil {
		return fail(err)
	}
	// Without a dot, a port or "localhost" the library would take the host for
	// part of a repository of Docker Hub.
	if repo.RepositoryStr() != path || (repo.RegistryStr() != host && host != "docker.io") {
		return fail(fmt.Errorf("%q is no host with a domain or a port", host))
	}
	out.repo = repo
	return out, nil
}

// hideUser cuts what stands before "@" in the host.
func hideUser(ref string) string {
	rest := strings.TrimPrefix(ref, Scheme)
	host, path, _ := strings.Cut(rest, "/")
	if _, after, has := strings.Cut(host, "@"); has {
		return Scheme + "...@" + after + "/" + path
	}
	return ref
}

func (r Reference) String() string {
	s := Scheme + r.repo.RegistryStr() + "/" + r.repo.RepositoryStr()
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + string(r.Digest)
	}
	return s
}

// Host is the registry, with its port.
func (r Reference) Host() string { return r.repo.RegistryStr() }

// Pinned is the reference to run in the same repository.
func (r Reference) Pinned(run schemas.Digest) Reference {
	return Reference{repo: r.repo, Digest: run}
}

// CheckPush refuses a tag that has a meaning of its own and would name another run:
// run-HEX, and sha256-HEX, under which the attachments of a run are listed.
func (r Reference) CheckPush(run schemas.Digest) error {
	if !ownTags.MatchString(r.Tag) || r.Tag == standIn(run) {
		return nil
	}
	return fmt.Errorf("tag %q belongs to the run, or the attachments, of that digest: choose another tag", r.Tag)
}

// Beside is another repository of the same registry.
func (r Reference) Beside(repository string) (name.Repository, error) {
	repo, err := name.NewRepository(r.Host()+"/"+repository, name.StrictValidation)
	if err == nil && !repoGrammar.MatchString(repository) {
		err = errors.New("lower case letters, digits, '.', '_', '-' and '/' between names")
	}
	if err != nil {
		return repo, fmt.Errorf("repository %q to mount from: %w", repository, err)
	}
	return repo, nil
}

// name is what a manifest is asked for by.
func (r Reference) manifest() string {
	if r.Digest != "" {
		return string(r.Digest)
	}
	return r.Tag
}

// loopback says whether a host, with or without a port, is this machine.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
