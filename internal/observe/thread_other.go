//go:build !linux

package observe

// rusageThread does not exist here: threadTime is 0.
const rusageThread = -1 << 20
