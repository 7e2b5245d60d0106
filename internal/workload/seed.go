package workload

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// SubSeed derives the seed for one purpose: the first eight bytes of
// SHA-256("assay/seed/v1\n", seed as eight big-endian bytes, purpose).
func SubSeed(seed uint64, purpose string) uint64 {
	sum := seedSum(seed, purpose)
	return binary.BigEndian.Uint64(sum[:8])
}

// NewRand returns the generator for one purpose of a seed.
func NewRand(seed uint64, purpose string) *rand.Rand {
	sum := seedSum(seed, purpose)
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])))
}

func seedSum(seed uint64, purpose string) [sha256.Size]byte {
	b := []byte("assay/seed/v1\n")
	b = binary.BigEndian.AppendUint64(b, seed)
	return sha256.Sum256(append(b, purpose...))
}
