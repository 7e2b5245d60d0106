package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

// account is what llama.cpp says of one request; times are in milliseconds.
type account struct {
	promptMs     float64 // evaluating the prompt
	promptTokens int     // without those that were in the cache
	evalMs       float64 // evaluating one token after another
	evalRuns     int     // tokens after the first
	totalMs      float64 // from the beginning to the last token, sampling included
}

var (
	promptLine = regexp.MustCompile(`prompt eval time = +([0-9.]+) ms / +([0-9]+) tokens`)
	evalLine   = regexp.MustCompile(`: +eval time = +([0-9.]+) ms / +([0-9]+) runs`)
	totalLine  = regexp.MustCompile(`total time = +([0-9.]+) ms`)
)

// maxLine bounds a line of the log.
const maxLine = 1 << 20

// readLog takes the accounts of a log, in its order.
func readLog(r io.Reader) ([]account, error) {
	var all []account
	var a account
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		var err error
		if m := promptLine.FindStringSubmatch(line); m != nil {
			a = account{}
			a.promptMs, a.promptTokens, err = pair(m)
		} else if m := evalLine.FindStringSubmatch(line); m != nil {
			a.evalMs, a.evalRuns, err = pair(m)
		} else if m := totalLine.FindStringSubmatch(line); m != nil {
			a.totalMs, err = strconv.ParseFloat(m[1], 64)
			all = append(all, a)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return all, lines.Err()
}

func pair(m []string) (ms float64, n int, err error) {
	if ms, err = strconv.ParseFloat(m[1], 64); err == nil {
		n, err = strconv.Atoi(m[2])
	}
	return ms, n, err
}
