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
	m := avroMarks{Tree: tree, above: make(map[string]bool)}
	if err := m.checkTypes(tree.Root); err != nil {
		return nil, err
	}
	return m.record("", tree.Root)
}

type avroMarks struct {
	avsc.Tree
	above map[string]bool // names of the records around one
}

// checkTypes returns an error if a type is marked, and not a field.
func (m avroMarks) checkTypes(n *avro.SchemaNode) error {
	if n == nil {
		return nil
	}
	if _, marked := n.Props[property]; marked {
		return fmt.Errorf("type %s has the property %s: set it at a field", m.Describe(n), property)
	}
	for i := range n.Fields {
		if err := m.checkTypes(&n.Fields[i].Type); err != nil {
			return err
		}
	}
	for i := range n.Branches {
		if err := m.checkTypes(&n.Branches[i]); err != nil {
			return err
		}
	}
	if err := m.checkTypes(n.Items); err != nil {
		return err
	}
	return m.checkTypes(n.Values)
}

// record reads the marks of a record, and of all records in it. A definition is read at each place that refers to it, since it may be
// encrypted at one place and not at another.
func (m avroMarks) record(path string, n *avro.SchemaNode) (*record, error) {
	name := avsc.FullName(n)
	m.above[name] = true
	defer delete(m.above, name)
	r := newRecord()
	for i := range n.Fields {
		f := &n.Fields[i]
		at := inPath(path, f.Name)
		mark, marked := f.Props[property]
		if !marked {
			inner, err := m.within(at, &f.Type)
			if err != nil {
				return nil, err
			}
			r.nest(f.Name, inner)
			continue
		}
		of := m.single(&f.Type)
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

// within reads the marks of the type of a field: a record, or an array of records. No other type may contain a marked field.
func (m avroMarks) within(at string, n *avro.SchemaNode) (*record, error) {
	of := m.single(n)
	if of.Type == "array" {
		of = m.single(of.Items)
	}
	marked := m.marked(of, make(map[*avro.SchemaNode]bool))
	switch {
	case avsc.KindOf(of) == "record" && !m.above[avsc.FullName(of)]:
		return m.record(at, of)
	case marked == nil:
		return newRecord(), nil
	case avsc.KindOf(of) == "record":
		return nil, fmt.Errorf("%s: a record that contains itself cannot have personal fields", at)
	}
	return nil, fmt.Errorf("field %s of %s: only fields of records, and of arrays of records, can be personal", marked.Name, at)
}

// marked returns a field with personal data in a type, or in a type that it refers to, or nil.
func (m avroMarks) marked(n *avro.SchemaNode, seen map[*avro.SchemaNode]bool) *avro.SchemaField {
	if n == nil {
		return nil
	}
	if n = m.Follow(n); seen[n] {
		return nil
	}
	seen[n] = true
	for i := range n.Fields {
		f := &n.Fields[i]
		if mark, is := f.Props[property]; is && mark != subjectMark {
			return f
		}
		if found := m.marked(&f.Type, seen); found != nil {
			return found
		}
	}
	for i := range n.Branches {
		if found := m.marked(&n.Branches[i], seen); found != nil {
			return found
		}
	}
	if found := m.marked(n.Items, seen); found != nil {
		return found
	}
	return m.marked(n.Values, seen)
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
