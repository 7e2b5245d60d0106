package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gowebpki/jcs"
)

// Digest names content: "sha256:" and 64 lower-case hex digits of the bytes.
type Digest string

// Key names everything that determines a stage's result: "key:" and 64
// lower-case hex digits, the SHA-256 of the stored canonical preimage. It is a
// type of its own so that the compiler keeps inputs and content apart.
type Key string

const (
	digestPrefix = "sha256:"
	keyPrefix    = "key:"
	hexLen       = sha256.Size * 2
)

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return DigestFromSum(sum[:])
}

// DigestFromSum wraps a finished SHA-256 sum of 32 bytes.
func DigestFromSum(sum []byte) Digest { return Digest(digestPrefix + hex.EncodeToString(sum)) }

// ParseDigest accepts the full form only.
func ParseDigest(s string) (Digest, error) {
	d := Digest(s)
	if !d.Valid() {
		return "", fmt.Errorf("digest %q: want sha256: and %d lower-case hex digits", s, hexLen)
	}
	return d, nil
}

// Valid reports whether d has the full form.
func (d Digest) Valid() bool {
	return strings.HasPrefix(string(d), digestPrefix) && isLowerHex(string(d[len(digestPrefix):]))
}

// Hex returns the 64 digits. Empty for an invalid digest.
func (d Digest) Hex() string {
	if !d.Valid() {
		return ""
	}
	return string(d[len(digestPrefix):])
}

// Short returns the first 12 digits, for people.
func (d Digest) Short() string {
	if h := d.Hex(); h != "" {
		return h[:12]
	}
	return string(d)
}

// Preimage returns the digest of the blob that holds k's canonical preimage:
// the same hex digits, so `sha256sum` on that blob checks the key.
func (k Key) Preimage() Digest { return Digest(digestPrefix + k.Hex()) }

// Valid reports whether k has the full form.
func (k Key) Valid() bool {
	return strings.HasPrefix(string(k), keyPrefix) && isLowerHex(string(k[len(keyPrefix):]))
}

// Hex returns the 64 digits. Empty for an invalid key.
func (k Key) Hex() string {
	if !k.Valid() {
		return ""
	}
	return string(k[len(keyPrefix):])
}

// Short returns the first 12 digits, for people.
func (k Key) Short() string {
	if h := k.Hex(); h != "" {
		return h[:12]
	}
	return string(k)
}

// KeyOf returns the key of v and its canonical preimage.
func KeyOf(v any) (Key, []byte, error) {
	b, err := Canonical(v)
	if err != nil {
		return "", nil, fmt.Errorf("key: %w", err)
	}
	return Key(keyPrefix + DigestOf(b).Hex()), b, nil
}

// Canonical encodes v as RFC 8785 JSON: the one encoding that is hashed.
func Canonical(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	out, err := jcs.Transform(b)
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	return out, nil
}

func isLowerHex(s string) bool {
	if len(s) != hexLen {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
