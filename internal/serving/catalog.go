package serving

import (
	"fmt"
	"strings"
)

// Device is what the model knows of an accelerator.
type Device struct {
	Name     string
	MemoryGB float64
}

// BaseModel is what the model knows of a checkpoint that served models are
// aliases of.
type BaseModel struct {
	Name         string
	MemoryGB     float64
	KVGBPerToken float64
	MaxSeqLen    int // tokens
}

// Devices are those of the published Aegaeon artifact.
var Devices = []Device{{"a10", 24}, {"l20", 48}, {"a100", 80}, {"h800", 80}, {"h100", 80}}

const gib = 1 << 30

// BaseModels are those of the published Aegaeon artifact. KV per token is four
// bytes for each layer and hidden unit: a key and a value of two bytes.
var BaseModels = []BaseModel{
	{"qwen2.5-7b", 14, 4.0 * 28 * 3584 / gib, 8192},
	{"yi-9b", 18, 4.0 * 48 * 4096 / gib, 4096},
	{"llama2-13b", 26, 4.0 * 40 * 5120 / gib, 4096},
}

// aliasBase gives the base model of the n-th distinct alias of a workload that
// names none, by n mod 10.
var aliasBase = [10]string{
	"qwen2.5-7b", "qwen2.5-7b", "qwen2.5-7b", "qwen2.5-7b", "qwen2.5-7b", "qwen2.5-7b",
	"yi-9b", "yi-9b", "llama2-13b", "llama2-13b",
}

// AliasBase is the base model that the published artifact gives to the n-th
// distinct alias (from 0) of a workload file.
func AliasBase(n int) string { return aliasBase[n%len(aliasBase)] }

// FindDevice looks a device up by name.
func FindDevice(name string) (Device, error) {
	var names []string
	for _, d := range Devices {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return Device{}, fmt.Errorf("device %q is not known: want one of %s", name, strings.Join(names, ", "))
}

// FindBaseModel looks a base model up by name.
func FindBaseModel(name string) (BaseModel, error) {
	var names []string
	for _, m := range BaseModels {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return BaseModel{}, fmt.Errorf("base model %q is not known: want one of %s", name, strings.Join(names, ", "))
}

// kvUsable is the share of the memory beside the weights that KV may fill.
const kvUsable = 0.8

// KVCapacity is the number of tokens whose KV fits beside the weights; 0 when not
// even those fit.
func KVCapacity(d Device, m BaseModel) int {
	room := d.MemoryGB - m.MemoryGB
	if !(room > 0) || !(m.KVGBPerToken > 0) {
		return 0
	}
	return int(room * kvUsable / m.KVGBPerToken)
}
