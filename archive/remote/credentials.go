package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"assay/internal/durable"
)

// The library's own keychain stops at the first file that exists, so a login of
// Podman is not seen beside a config of Docker. Here each file is asked in turn,
// the one that was named for the purpose first, and the error of a refused
// request can say which one was used.

// credential is what is sent to a registry, and where it came from.
type credential struct {
	auth   authn.Authenticator
	source string   // for messages; "" when there is none
	secret []string // must not get into any message
	renew  string   // how to log in again, for messages
}

// credentialFiles lists the files that may hold a login, in the order they are
// asked.
func credentialFiles(getenv func(string) string) []string {
	home := getenv("HOME")
	var list []string
	add := func(dir, file string) {
		if dir != "" {
			list = append(list, filepath.Join(dir, file))
		}
	}
	add(getenv("REGISTRY_AUTH_FILE"), "")
	if docker := getenv("DOCKER_CONFIG"); docker != "" {
		add(docker, "config.json")
	} else if home != "" {
		add(home, ".docker/config.json")
	}
	add(getenv("XDG_RUNTIME_DIR"), "containers/auth.json")
	if xdg := getenv("XDG_CONFIG_HOME"); xdg != "" {
		add(xdg, "containers/auth.json")
	} else if home != "" {
		add(home, ".config/containers/auth.json")
	}
	return list
}

// findCredential looks for a login for the repository, the registry last: Podman
// keeps logins for parts of a registry too. In each file credHelpers goes before
// credsStore before auths.
func findCredential(ctx context.Context, repo name.Repository, getenv func(string) string) (credential, error) {
	none := credential{auth: authn.Anonymous}
	for _, path := range credentialFiles(getenv) {
		cf, err := readCredentialFile(path)
		if errors.Is(err, fs.ErrNotExist) && path != filepath.Clean(getenv("REGISTRY_AUTH_FILE")) {
			continue
		}
		if err != nil {
			return none, fmt.Errorf("credentials in %s: %w", path, err)
		}
		for _, key := range credentialKeys(repo) {
			got, err := authConfig(ctx, cf, key)
			if ctx.Err() != nil {
				return none, context.Cause(ctx)
			}
			if err != nil {
				return none, fmt.Errorf("credentials for %s in %s (%s): %s", key, path, storeKind(cf, key), clean(err.Error(), nil))
			}
			got.ServerAddress = ""
			if got == (types.AuthConfig{}) {
				continue
			}
			return credential{
				auth: authn.FromConfig(authn.AuthConfig{Username: got.Username, Password: got.Password, Auth: got.Auth,
					IdentityToken: got.IdentityToken, RegistryToken: got.RegistryToken}),
				source: path + " (" + storeKind(cf, key) + ")",
				secret: []string{got.Password, got.Auth, got.IdentityToken, got.RegistryToken},
				renew:  loginCommand(path, repo),
			}, nil
		}
	}
	return none, nil
}

// authConfig is what a file says of key: its helper, if it names one, else the file
// itself; DOCKER_AUTH_CONFIG before both.
func authConfig(ctx context.Context, cf *configfile.ConfigFile, key string) (types.AuthConfig, error) {
	helper, own := cf.CredentialHelpers[key]
	if !own {
		helper = cf.CredentialsStore
	}
	if helper == "" {
		return cf.GetAuthConfig(key)
	}
	given, err := configfile.New("").GetAuthConfig(key)
	if err != nil || given.Username != "" {
		return given, err
	}
	return askHelper(ctx, helper, key, helperTime)
}

// loginCommand is what keeps a login in the file.
func loginCommand(path string, repo name.Repository) string {
	tool := "docker"
	if filepath.Base(path) == "auth.json" {
		tool = "podman"
	}
	host := repo.RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	return "`" + tool + " login " + host + "`"
}

// maxCredentialFile bounds what is read of one.
const maxCredentialFile = 16 << 20

func readCredentialFile(path string) (*configfile.ConfigFile, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cf, err := config.LoadFromReader(io.LimitReader(f, maxCredentialFile))
	if err != nil {
		// The text of a parser may quote what it could not parse.
		return nil, errors.New("the file is not the JSON of a login: log in again")
	}
	return cf, nil
}

// credentialKeys goes from the repository over the folders above it to the
// registry.
func credentialKeys(repo name.Repository) []string {
	host := repo.RegistryStr()
	if host == name.DefaultRegistry {
		return []string{authn.DefaultAuthKey, "docker.io"}
	}
	var keys []string
	for path := repo.RepositoryStr(); path != ""; {
		keys = append(keys, host+"/"+path)
		i := strings.LastIndexByte(path, '/')
		path = path[:max(i, 0)]
	}
	return append(keys, host)
}

func storeKind(cf *configfile.ConfigFile, key string) string {
	host, _, _ := strings.Cut(key, "/")
	switch {
	case cf.CredentialHelpers[key] != "":
		return "credHelpers: " + cf.CredentialHelpers[key]
	case cf.CredentialHelpers[host] != "":
		return "credHelpers: " + cf.CredentialHelpers[host]
	case cf.CredentialsStore != "":
		return "credsStore: " + cf.CredentialsStore
	}
	return "auths"
}
