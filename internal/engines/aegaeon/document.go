package aegaeon

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Kind is what a value of a document is.
type Kind string

// The kinds.
const (
	Scalar Kind = "scalar"
	Table  Kind = "table"
	List   Kind = "list"
)

const (
	// maxDepth and maxNodes are more than any configuration has; an alias counts as
	// often as it is used.
	maxDepth = 32
	maxNodes = 100_000
	maxKeys  = 2000 // of one table
)

// Value is a value as it is written, with where it stands. What it means is for the
// reader to say: YAML 1.1 and 1.2 differ.
type Value struct {
	Kind         Kind
	Line, Column int
	// Text of a scalar, and whether it stands there without quotes, block marks and
	// tags, so that readers guess its type.
	Text  string
	Plain bool
	// Tag is one that is written out, as in !!str 7.
	Tag string
	// Keys of a table, in their order; a name may stand there twice.
	Keys []Key
	// Items of a list.
	Items []*Value
}

// Key is a key of a table with its value.
type Key struct {
	Name         string
	Plain        bool
	Line, Column int
	Merged       bool // comes from another table by <<
	Value        *Value
}

// Problem is what keeps a document from being read, and where.
type Problem struct {
	Line, Column int // 0: of the whole file
	Text         string
}

// Get is the first value of a key, nil for none.
func (v *Value) Get(name string) *Value {
	if v == nil {
		return nil
	}
	for _, k := range v.Keys {
		if k.Name == name {
			return k.Value
		}
	}
	return nil
}

// Parse reads one YAML document with the positions of everything in it. There is no
// document where there are problems.
func Parse(content []byte) (*Value, []Problem) {
	if len(content) > maxConfig {
		return nil, []Problem{{Text: fmt.Sprintf("larger than %d bytes: not a configuration", maxConfig)}}
	}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, []Problem{{Text: "empty"}}
	} else if err != nil {
		line, text := yamlError(err)
		return nil, []Problem{{Line: line, Text: "not YAML: " + text}}
	}
	if err := dec.Decode(&second); err == nil {
		return nil, []Problem{{Line: second.Line, Column: second.Column, Text: "a second document begins here: want one"}}
	} else if !errors.Is(err, io.EOF) {
		line, text := yamlError(err)
		return nil, []Problem{{Line: line, Text: "not YAML: " + text}}
	}
	if len(doc.Content) != 1 {
		return nil, []Problem{{Text: "empty"}}
	}
	c := converter{left: maxNodes}
	v := c.value(doc.Content[0], 0)
	if c.problem != nil {
		return nil, []Problem{*c.problem}
	}
	return v, nil
}

// converter copies nodes within limits: an alias may stand for tables of aliases, or
// for a table that it is in itself.
type converter struct {
	left    int
	problem *Problem
}

// fail keeps the first problem.
func (c *converter) fail(n *yaml.Node, text string) *Value {
	if c.problem == nil {
		c.problem = &Problem{Line: n.Line, Column: n.Column, Text: text}
	}
	return &Value{Kind: Scalar, Line: n.Line, Column: n.Column}
}

func (c *converter) value(n *yaml.Node, depth int) *Value {
	if c.left--; c.left < 0 || depth > maxDepth {
		return c.fail(n, fmt.Sprintf("more than %d values, or deeper than %d levels: not a configuration", maxNodes, maxDepth))
	}
	if c.problem != nil {
		return &Value{Kind: Scalar}
	}
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		v := *c.value(n.Alias, depth+1)
		v.Line, v.Column = n.Line, n.Column
		return &v
	}
	v := &Value{Kind: Scalar, Line: n.Line, Column: n.Column}
	if n.Style&yaml.TaggedStyle != 0 {
		v.Tag = n.Tag
	}
	switch n.Kind {
	case yaml.MappingNode:
		v.Kind = Table
		c.table(v, n, depth)
	case yaml.SequenceNode:
		v.Kind = List
		for _, item := range n.Content {
			v.Items = append(v.Items, c.value(item, depth+1))
		}
	default:
		v.Text, v.Plain = n.Value, plain(n)
	}
	return v
}

// plain says whether readers guess a scalar's type.
func plain(n *yaml.Node) bool {
	const marked = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.TaggedStyle
	return n.Style&marked == 0
}

func (c *converter) table(v *Value, n *yaml.Node, depth int) {
	var merged []Key
	if len(n.Content)/2 > maxKeys {
		c.fail(n, fmt.Sprintf("a table of more than %d keys: not a configuration", maxKeys))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind == yaml.AliasNode && k.Alias != nil {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			c.fail(k, "a key that is no text")
			return
		}
		value := c.value(n.Content[i+1], depth+1)
		if k.Tag != "!!merge" {
			v.Keys = append(v.Keys, Key{Name: k.Value, Plain: plain(k), Line: k.Line, Column: k.Column, Value: value})
			continue
		}
		from := value.Items
		if value.Kind == Table {
			from = []*Value{value}
		}
		for _, t := range from {
			merged = append(merged, t.Keys...)
		}
	}
	if len(merged) > maxKeys {
		c.fail(n, fmt.Sprintf("more than %d keys merged into a table: not a configuration", maxKeys))
		return
	}
	for _, k := range merged {
		if v.Get(k.Name) == nil {
			k.Merged = true
			v.Keys = append(v.Keys, k)
		}
	}
}
