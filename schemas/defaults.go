package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/internal/avsc"
)

// goavro puts the default of each missing field into a map before it encodes a record: two megabytes of "{}," became two gigabytes with a
// record of 30 such fields. checkFields counts the fields of all records, including missing ones, before goavro starts.
const (
	mostFields = 4 * maxValues // a bare value of a union may count for several branches
	smallText  = 16 << 10      // bytes of a text that is not counted
)

// checkFields returns an error for a text whose records have more than mostFields fields with the missing ones.
func (g *avroSchema) checkFields(text []byte) error {
	if !g.hasDefaults || len(text) <= smallText {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	c := fieldCounter{g.types, mostFields}
	c.value(g.root, v)
	if c.left < 0 {
		return fmt.Errorf("more than %d fields of records, with the missing ones", mostFields)
	}
	return nil
}

type fieldCounter struct {
	tree
	left int
}

func (c *fieldCounter) value(n *avro.SchemaNode, v any) {
	n = c.Follow(n)
	if c.left--; c.left < 0 || n == nil {
		return
	}
	if n.Type == "union" {
		c.union(n, v)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		c.left -= len(n.Fields)
		for i := range n.Fields {
			if inner, has := v[n.Fields[i].Name]; has {
				c.value(&n.Fields[i].Type, inner)
			}
		}
		for _, inner := range v {
			if n.Values == nil {
				break
			}
			c.value(n.Values, inner)
		}
	case []any:
		for _, inner := range v {
			if n.Items == nil {
				break
			}
			c.value(n.Items, inner)
		}
	}
}

func (c *fieldCounter) union(n *avro.SchemaNode, v any) {
	if m, is := v.(map[string]any); is && len(m) == 1 {
		for name, inner := range m {
			if b := c.branchOf(n, name); b != nil {
				c.value(b, inner)
				return
			}
		}
	}
	for i := range n.Branches {
		if b := c.Follow(&n.Branches[i]); holds(b, v) {
			c.value(b, v)
		}
	}
}

// hasDefaults reports whether a record has a field with a default.
func (t tree) hasDefaults() bool {
	var look func(n *avro.SchemaNode) bool
	look = func(n *avro.SchemaNode) bool {
		if n == nil {
			return false
		}
		for i := range n.Fields {
			if n.Fields[i].HasDefault || look(&n.Fields[i].Type) {
				return true
			}
		}
		for i := range n.Branches {
			if look(&n.Branches[i]) {
				return true
			}
		}
		return look(n.Items) || look(n.Values)
	}
	return look(t.Root)
}

// triesAgain reports whether a union has several branches that can hold an object or a list, and one of these has a union within it.
func (t tree) triesAgain() bool {
	return t.anyOf(func(n *avro.SchemaNode) bool {
		if n.Type != "union" {
			return false
		}
		holders, inner := 0, false
		for i := range n.Branches {
			b := t.Follow(&n.Branches[i])
			if avsc.KindOf(b) != "record" && b.Type != "map" && b.Type != "array" {
				continue
			}
			holders++
			inner = inner || t.reaches(b, func(n *avro.SchemaNode) bool { return n.Type == "union" }, make(map[*avro.SchemaNode]bool))
		}
		return holders > 1 && inner
	})
}

// anyOf reports whether is holds for a type of the schema.
func (t tree) anyOf(is func(*avro.SchemaNode) bool) bool {
	return t.reaches(t.Root, is, make(map[*avro.SchemaNode]bool))
}

// reaches reports whether is holds for n or for a type within n.
func (t tree) reaches(n *avro.SchemaNode, is func(*avro.SchemaNode) bool, seen map[*avro.SchemaNode]bool) bool {
	if n == nil {
		return false
	}
	if n = t.Follow(n); seen[n] {
		return false
	}
	seen[n] = true
	if is(n) || t.reaches(n.Items, is, seen) || t.reaches(n.Values, is, seen) {
		return true
	}
	for i := range n.Fields {
		if t.reaches(&n.Fields[i].Type, is, seen) {
			return true
		}
	}
	for i := range n.Branches {
		if t.reaches(&n.Branches[i], is, seen) {
			return true
		}
	}
	return false
}
