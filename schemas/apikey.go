package schemas

import (
	"errors"
	"fmt"
	"strings"
)

// FieldAPIKey is the key of a service that holds its API key.
const FieldAPIKey = "api_key"

// minAPIKey is the shortest API key that can be kept out of an archive: a shorter
// one is found in text that has nothing to do with it.
const minAPIKey = 8

// APIKey is what a service asks for before it answers. It prints and encodes as a
// placeholder; only Header gives it. The zero value is none.
type APIKey struct {
	value *string // behind a pointer, so that no verb of fmt reaches it
}

// NewAPIKey takes a key, of which white space around it is no part. An error never
// holds the key.
func NewAPIKey(value string) (APIKey, error) {
	value = strings.TrimSpace(value)
	switch {
	case value == "":
		return APIKey{}, errors.New("the API key is empty")
	case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return APIKey{}, errors.New("the API key holds white space or a character that no header may hold")
	case len(value) < minAPIKey:
		return APIKey{}, fmt.Errorf("the API key has fewer than %d characters: results that hold them by chance could not be archived", minAPIKey)
	}
	return APIKey{&value}, nil
}

// Given says whether there is one.
func (k APIKey) Given() bool { return k.value != nil }

// Header is what is sent with every question to the service, by canonical name; nil
// for no key.
func (k APIKey) Header() map[string][]string {
	if k.value == nil {
		return nil
	}
	return map[string][]string{"Authorization": {"Bearer " + *k.value}}
}

const hiddenKey = "(secret)"

func (APIKey) String() string               { return hiddenKey }
func (APIKey) GoString() string             { return hiddenKey }
func (APIKey) MarshalText() ([]byte, error) { return []byte(hiddenKey), nil }

// apiKeyField is the key of every service that is asked over HTTP.
func apiKeyField() Field {
	return Field{Name: FieldAPIKey, Type: TypeSecret, Secret: true, Unkeyed: true,
		Doc: "${secret.NAME} of the machine file: sent as Authorization: Bearer with everything that asks the service; the emulated engine does not look at it"}
}
