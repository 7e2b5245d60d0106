// Package fingerprint identifies checkpoints. Weights are never archived: their
// fingerprint stands for them in keys and reports, and an experiment may pin it. It
// is computed here and nowhere else, so that what is pinned, what is checked before
// a run and what enters a key are one number.
package fingerprint
