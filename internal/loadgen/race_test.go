//go:build race

package loadgen

const raceDetector = true
