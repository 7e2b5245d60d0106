package schemas

import (
	"errors"
	"fmt"
)

// MeasureMode says how a measure stage sends, from its keys, and refuses keys that
// contradict each other. What a key's value is matters for mode alone; a mode that
// is still a reference is not judged ("" without an error).
func MeasureMode(config map[string]any) (string, error) {
	set := Settings(config)
	mode := set.Text("mode")
	if holdsReference(mode) {
		return "", nil
	}
	if mode == "" {
		switch {
		case set.Has("concurrency"):
			mode = ModeClosed
		case set.Has("workload") || set.Has("arrival"):
			mode = ModeOpen
		default:
			return "", errors.New("nothing says when requests are sent: give workload, arrival, concurrency or mode")
		}
	}
	if set.Has("workload") && set.Has("prompts") {
		return "", errors.New("workload and prompts exclude each other: requests come from one file")
	}
	var err error
	switch mode {
	case ModeOpen:
		err = openKeys(set)
	case ModeClosed, ModeSequential:
		err = refuseKeys(set, mode, "arrival", "max_in_flight")
		if err == nil && set.Has("concurrency") != (mode == ModeClosed) {
			err = errors.New("concurrency belongs to mode closed, and that mode needs it: sequential is one at a time")
		}
		if err == nil && !set.Has("workload") && !set.Has("prompts") {
			err = needKeys(set, mode, "input", "output")
			if err == nil && !set.Has("requests") && !set.Has("duration") {
				err = fmt.Errorf("%s needs requests or duration: what says when it ends", mode)
			}
		}
	case ModeSwitch:
		err = refuseKeys(set, mode, "workload", "prompts", "arrival", "max_in_flight", "duration", "concurrency", "requests")
		if err == nil {
			err = needKeys(set, mode, "input", "output")
		}
	default:
		err = fmt.Errorf("mode %q: want open, closed, sequential or switch", mode)
	}
	if err == nil && mode != ModeSwitch && set.Has("steady") {
		err = errors.New("steady belongs to mode switch: it is how many requests follow each switch")
	}
	if err == nil && set.Has("turns") && !set.Has("prompts") {
		err = errors.New("turns belongs to prompts: a file of conversations")
	}
	if err == nil && set.Has("think") && !set.Has("turns") {
		err = errors.New("think belongs to turns: it is the time between an answer and the next turn")
	}
	if err == nil && set.Has("turns") {
		err = refuseKeys(set, "turns", "max_in_flight")
	}
	if err == nil && set.Has("at_end") && (!set.Has("duration") || mode == ModeOpen) {
		err = errors.New("at_end belongs to duration in a closed loop: a fixed number of requests is always waited for")
	}
	if err == nil && !set.Has("workload") {
		err = refuseKeys(set, "generated requests or prompts", "window")
	}
	if err == nil && set.Has("workload") {
		err = refuseKeys(set, "a workload", "input", "output", "shuffle")
	}
	if err == nil && set.Has("prompts") {
		err = refuseKeys(set, "prompts", "input")
	}
	return mode, err
}

func openKeys(set Settings) error {
	if set.Has("workload") == set.Has("arrival") {
		return errors.New("open loop needs exactly one of workload and arrival: what says when requests arrive")
	}
	if err := refuseKeys(set, ModeOpen, "concurrency"); err != nil {
		return err
	}
	if set.Has("workload") {
		return refuseKeys(set, "a workload", "duration")
	}
	if set.Has("requests") && set.Has("duration") {
		return errors.New("requests and duration exclude each other: either says when arrivals end")
	}
	if set.Has("prompts") {
		return nil
	}
	if !set.Has("requests") && !set.Has("duration") {
		return errors.New("generated arrivals need requests or duration: what says when they end")
	}
	return needKeys(set, "generated requests", "input", "output")
}

func refuseKeys(set Settings, with string, keys ...string) error {
	for _, k := range keys {
		// A default is not a choice.
		if set.Has(k) && set[k] != false {
			return fmt.Errorf("%s has no meaning with %s: leave it out", k, with)
		}
	}
	return nil
}

func needKeys(set Settings, what string, keys ...string) error {
	for _, k := range keys {
		if !set.Has(k) {
			return fmt.Errorf("%s: %s is not set", what, k)
		}
	}
	return nil
}
