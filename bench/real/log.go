package main

import (
	"bufio"
	"errors"
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
const maxLine = 1 << 16

// readLog takes the accounts of a log, in its order.
func readLog(r io.Reader) ([]account, error) {
	var all []account
	var a account
	lines := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		line, _, err := lines.ReadLine() // a longer line comes in pieces, none of which is an account
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if m := promptLine.FindSubmatch(line); m != nil {
			a = account{}
			a.promptMs, a.promptTokens, err = pair(m)
		} else if m := evalLine.FindSubmatch(line); m != nil {
			a.evalMs, a.evalRuns, err = pair(m)
		} else if m := totalLine.FindSubmatch(line); m != nil {
			a.totalMs, err = strconv.ParseFloat(string(m[1]), 64)
			all = append(all, a)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

func pair(m [][]byte) (ms float64, n int, err error) {
	if ms, err = strconv.ParseFloat(string(m[1]), 64); err == nil {
		n, err = strconv.Atoi(string(m[2]))
	}
	return ms, n, err
}
