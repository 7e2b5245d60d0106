package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/experiments"
	"assay/preflight"
	"assay/preflight/secrets"
	"assay/schemas"
)

func apiKeyFlag() cli.Flag {
	return &cli.StringFlag{Name: "api-key-env", Usage: "send the API key that the environment variable `NAME` holds"}
}

// variableName is what may stand for a key. What does not look like one may be the
// key itself, and is not repeated.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// apiKeyVariable is the flag's variable, "" without the flag.
func (c *call) apiKeyVariable() (string, error) {
	name := c.String("api-key-env")
	switch {
	case !c.IsSet("api-key-env"):
		return "", nil
	case variableName.MatchString(name):
		return name, nil
	}
	return "", errors.New("--api-key-env: want the name of an environment variable, not the key: a command line can be read by everybody")
}

// apiKey reads the key that the flag names.
func (c *call) apiKey() (schemas.APIKey, string, error) {
	name, err := c.apiKeyVariable()
	if err != nil || name == "" {
		return schemas.APIKey{}, "", err
	}
	value, known := os.LookupEnv(name)
	if !known {
		return schemas.APIKey{}, "", errors.New("--api-key-env: there is no environment variable of that name")
	}
	key, err := schemas.NewAPIKey(value)
	if err != nil {
		return key, "", fmt.Errorf("--api-key-env: %s: %w", name, err)
	}
	return key, strings.TrimSpace(value), nil
}

// keyFindings looks whether the API keys of an experiment's services can be had.
func (l *loaded) keyFindings() []schemas.Finding {
	var list []schemas.Finding
	for _, name := range slices.Sorted(maps.Keys(l.Experiment.Service)) {
		for _, ref := range schemas.References(l.Experiment.Service[name].Config[schemas.FieldAPIKey]) {
			value, err := secretOf(l.Machine, ref.Names[0])
			list = append(list, secrets.Key("service "+name, value, err))
		}
	}
	return list
}

// missingKeys are the findings that refuse a run, nil for none.
func (l *loaded) missingKeys() []schemas.Finding {
	list := l.keyFindings()
	if len(preflight.Refuses(list)) == 0 {
		return nil
	}
	return list
}

func secretOf(m experiments.Machine, name string) (string, error) {
	s, err := m.Secret(name)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(s.Reveal()) == "" {
		where := strings.Replace(m.Secrets[name], "env:", "the environment variable ", 1)
		return "", fmt.Errorf("secret %q: %s is empty", name, strings.TrimPrefix(where, "file:"))
	}
	return s.Reveal(), nil
}
