package personal

import (
	"fmt"

	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/internal/avsc"
)

// markedAvro reads the marks of an Avro record.
func markedAvro(text string) (*record, error) {
	tree, err := avsc.Parse(text)
	if err != nil {
		return nil, err
	}
	m := avroMarks{Tree: tree, left: make(map[*avro.SchemaField]bool), above: make(map[string]bool)}
	if err := m.collect(tree.Root); err != nil || len(m.left) == 0 {
		return newRecord(), err
	}
	r, err := m.record("", tree.Root)
	if err != nil {
		return nil, err
	}
	for f := range m.left {
		return nil, fmt.Errorf("field %s: only fields of records, and of arrays of records, can be personal", f.Name)
	}
	return r, nil
}

type avroMarks struct {
	avsc.Tree
	left  map[*avro.SchemaField]bool // marked fields that were not reached
	above map[string]bool            // names of the records around one
}

// collect finds all marked fields, wherever they are.
func (m avroMarks) collect(n *avro.SchemaNode) error {
	if n == nil {
		return nil
	}
	if _, marked := n.Props[property]; marked {
		return fmt.Errorf("type %s has the property %s: set it at a field", m.Describe(n), property)
	}
	for i := range n.Fields {
		f := &n.Fields[i]
		if _, marked := f.Props[property]; marked {
			m.left[f] = true
		}
		if err := m.collect(&f.Type); err != nil {
			return err
		}
	}
	for i := range n.Branches {
		if err := m.collect(&n.Branches[i]); err != nil {
			return err
		}
	}
	if err := m.collect(n.Items); err != nil {
		return err
	}
	return m.collect(n.Values)
}

func (m avroMarks) record(path string, n *avro.SchemaNode) (*record, error) {
	name := avsc.FullName(n)
	if m.above[name] {
		return newRecord(), nil // a mark in it is an error: see recursive
	}
	m.above[name] = true
	defer delete(m.above, name)
	r := newRecord()
	for i := range n.Fields {
		f := &n.Fields[i]
		at, of := inPath(path, f.Name), m.single(&f.Type)
		mark, marked := f.Props[property]
		if !marked {
			if of.Items != nil {
				of = m.single(of.Items)
			}
			if avsc.KindOf(of) != "record" {
				continue
			}
			inner, err := m.record(at, of)
			if err != nil {
				return nil, err
			}
			if m.above[avsc.FullName(of)] && m.hasMarks(of) {
				return nil, fmt.Errorf("%s: a record that contains itself cannot have personal fields", at)
			}
			r.nest(f.Name, inner)
			continue
		}
		delete(m.left, f)
		word, _ := mark.(string)
		if err := r.set(f.Name, word); err != nil {
			return nil, fmt.Errorf("field %w", err)
		}
		switch whole := of.Type == "int" || of.Type == "long"; {
		case of.LogicalType != "" && word != subjectMark:
			return nil, fmt.Errorf("field %s: a %s cannot be encrypted", at, m.Describe(of))
		case of.Type != "string" && (word == subjectMark && !whole || word != subjectMark && of.Type != "bytes"):
			return nil, fmt.Errorf("field %s: a %s cannot be marked as %s: %s", at, m.Describe(of), word, wanted(word))
		}
	}
	return r, nil
}

func wanted(mark string) string {
	if mark == subjectMark {
		return "want a string or a whole number"
	}
	return "want a string or bytes"
}

// single returns the definition of a type, without the null of a union of two.
func (m avroMarks) single(n *avro.SchemaNode) *avro.SchemaNode {
	n = m.Follow(n)
	if n.Type == "union" && len(n.Branches) == 2 {
		for i := range n.Branches {
			if n.Branches[i].Type == "null" {
				return m.Follow(&n.Branches[1-i])
			}
		}
	}
	return n
}

// hasMarks reports whether a definition contains a marked field, without the definitions that it refers to.
func (m avroMarks) hasMarks(n *avro.SchemaNode) bool {
	inside := avroMarks{Tree: m.Tree, left: make(map[*avro.SchemaField]bool)}
	return inside.collect(n) != nil || len(inside.left) > 0
}
