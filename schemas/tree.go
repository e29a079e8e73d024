package schemas

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/avro"
)

// A tree is a parsed schema whose references to named types can be followed.
type tree struct {
	schema *avro.Schema
	root   *avro.SchemaNode
	named  map[string]*avro.SchemaNode
}

func parseTree(avsc string) (t tree, err error) {
	if err := checkSize(avsc); err != nil {
		return t, err
	}
	err = guard(func() error {
		if t.schema, err = avro.Parse(avsc); err != nil {
			return err
		}
		t.root, t.named = t.schema.Root(), make(map[string]*avro.SchemaNode)
		t.collect(t.root)
		return nil
	})
	return t, err
}

func (t tree) collect(n *avro.SchemaNode) {
	if isNamed(n) {
		t.named[fullName(n)] = n
	}
	for i := range n.Fields {
		t.collect(&n.Fields[i].Type)
	}
	for i := range n.Branches {
		t.collect(&n.Branches[i])
	}
	for _, inner := range []*avro.SchemaNode{n.Items, n.Values} {
		if inner != nil {
			t.collect(inner)
		}
	}
}

// follow returns the definition that a reference names.
func (t tree) follow(n *avro.SchemaNode) *avro.SchemaNode {
	if named := t.named[n.Type]; named != nil {
		return named
	}
	return n
}

func isNamed(n *avro.SchemaNode) bool {
	return n.Type == "record" || n.Type == "error" || n.Type == "enum" || n.Type == "fixed"
}

// kindOf returns the type; error, which is a record on the wire, is returned as record.
func kindOf(n *avro.SchemaNode) string {
	if n.Type == "error" {
		return "record"
	}
	return n.Type
}

// Subject returns the full name of the record that avsc describes: the subject of its versions, and the type of its messages.
func Subject(avsc string) (string, error) {
	t, err := parseTree(avsc)
	if err != nil {
		return "", err
	}
	if t.root.Type != "record" {
		return "", fmt.Errorf("the schema is of type %s, want a record", t.root.Type)
	}
	return fullName(t.root), nil
}

// describe returns a type as text.
func (t tree) describe(n *avro.SchemaNode) string {
	switch kindOf(n) {
	case "union":
		var branches []string
		for i := range n.Branches {
			branches = append(branches, t.describe(&n.Branches[i]))
		}
		return "union of " + strings.Join(branches, ", ")
	case "array":
		return "array of " + t.describe(n.Items)
	case "map":
		return "map of " + t.describe(n.Values)
	case "record", "enum":
		return kindOf(n) + " " + fullName(n)
	}
	text := n.Type // a primitive, or the name of a type defined elsewhere
	if n.Type == "fixed" {
		text = fmt.Sprintf("fixed %s of %d bytes", fullName(n), n.Size)
	}
	if logical := describeLogical(n); logical != "" {
		return fmt.Sprintf("%s (%s)", text, logical)
	}
	return text
}

func describeLogical(n *avro.SchemaNode) string {
	if n.LogicalType == "decimal" {
		return fmt.Sprintf("decimal %d,%d", n.Precision, n.Scale)
	}
	return n.LogicalType
}

// describeDefault returns a default as in the schema's text, shortened if it is long.
func describeDefault(f *avro.SchemaField) string {
	if b, ok := f.Default.([]byte); ok {
		return fmt.Sprintf("%q", b)
	}
	text, err := json.Marshal(f.Default)
	if err != nil {
		return fmt.Sprint(f.Default)
	}
	if len(text) > 60 {
		return strings.ToValidUTF8(string(text[:60]), "") + "…"
	}
	return string(text)
}

// inPath returns the path of a field.
func inPath(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// counterpart returns the writer's field that a reader's field is read from, or nil.
func counterpart(reader *avro.SchemaField, writer []avro.SchemaField) *avro.SchemaField {
	for _, name := range append([]string{reader.Name}, reader.Aliases...) {
		if i := slices.IndexFunc(writer, func(f avro.SchemaField) bool { return f.Name == name }); i >= 0 {
			return &writer[i]
		}
	}
	return nil
}
