package schemas

import (
	"fmt"

	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/internal/avsc"
)

type kind uint8

const (
	kindNull kind = iota
	kindInt
	kindLong
	kindFixed // boolean, float, double and fixed: a number of bytes known from the schema
	kindBytes
	kindString
	kindEnum
	kindRecord
	kindUnion
	kindArray
	kindMap
)

// A shape is the part of a schema that determines where its binary ends.
type shape struct {
	kind      kind
	size      int      // bytes of a fixed, number of symbols of an enum
	parts     []*shape // fields, branches, the item, or the map's value
	least     int64    // fewest bytes of a value
	recursive bool     // of the whole schema: a record contains itself
}

// shapeOf requires a schema that avro.Parse has accepted.
func shapeOf(s *avro.Schema) (*shape, error) {
	named := make(map[string]*shape)
	open := make(map[*shape]bool)
	recursive := false

	var build func(n *avro.SchemaNode, within string) (*shape, error)
	build = func(n *avro.SchemaNode, within string) (*shape, error) {
		s := new(shape)
		if n.Name != "" {
			within = avsc.NamespaceOf(n)
		}
		switch n.Type {
		case "null":
			s.kind = kindNull
		case "int":
			s.kind, s.least = kindInt, 1
		case "long":
			s.kind, s.least = kindLong, 1
		case "boolean":
			s.kind, s.size, s.least = kindFixed, 1, 1
		case "float":
			s.kind, s.size, s.least = kindFixed, 4, 4
		case "double":
			s.kind, s.size, s.least = kindFixed, 8, 8
		case "fixed":
			s.kind, s.size, s.least = kindFixed, n.Size, int64(n.Size)
			named[avsc.FullName(n)] = s
		case "bytes":
			s.kind, s.least = kindBytes, 1
		case "string":
			s.kind, s.least = kindString, 1
		case "enum":
			s.kind, s.size, s.least = kindEnum, len(n.Symbols), 1
			named[avsc.FullName(n)] = s
		case "record", "error":
			s.kind = kindRecord
			named[avsc.FullName(n)] = s
			open[s] = true
			for i := range n.Fields {
				f, err := build(&n.Fields[i].Type, within)
				if err != nil {
					return nil, err
				}
				s.parts = append(s.parts, f)
				s.least += f.least
			}
			delete(open, s)
		case "union":
			s.kind, s.least = kindUnion, 1
			for i := range n.Branches {
				b, err := build(&n.Branches[i], within)
				if err != nil {
					return nil, err
				}
				s.parts = append(s.parts, b)
			}
		case "array", "map":
			s.kind, s.least = kindArray, 1
			item := n.Items
			if n.Type == "map" {
				s.kind, item = kindMap, n.Values
			}
			part, err := build(item, within)
			if err != nil {
				return nil, err
			}
			s.parts = []*shape{part}
		default:
			if s = named[within+"."+n.Type]; s == nil {
				s = named[n.Type]
			}
			if s == nil {
				return nil, fmt.Errorf("type %q is not defined in the schema", n.Type)
			}
			recursive = recursive || open[s]
		}
		return s, nil
	}
	root, err := build(s.Root(), "")
	if err != nil {
		return nil, err
	}
	root.recursive = recursive
	return root, nil
}
