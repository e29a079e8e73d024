package avsc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/avro"
)

// A Tree is a parsed schema whose references to named types can be followed.
type Tree struct {
	Schema *avro.Schema
	Root   *avro.SchemaNode
	named  map[string]*avro.SchemaNode
}

// Parse parses a schema within the limits of CheckSize.
func Parse(avsc string) (t Tree, err error) {
	if err := CheckSize(avsc); err != nil {
		return t, err
	}
	err = Guard(func() error {
		if t.Schema, err = avro.Parse(avsc); err != nil {
			return err
		}
		t.Root, t.named = t.Schema.Root(), make(map[string]*avro.SchemaNode)
		t.collect(t.Root)
		t.qualify(t.Root, "")
		return nil
	})
	return t, err
}

func (t Tree) collect(n *avro.SchemaNode) {
	if isNamed(n) {
		t.named[FullName(n)] = n
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

// qualify replaces the names in references by full names: a name without a namespace may mean a type of the namespace around it.
func (t Tree) qualify(n *avro.SchemaNode, within string) {
	if isNamed(n) {
		within = NamespaceOf(n)
	} else if full := within + "." + n.Type; !slices.Contains(unnamed, n.Type) && t.named[full] != nil {
		n.Type = full
	}
	for i := range n.Fields {
		t.qualify(&n.Fields[i].Type, within)
	}
	for i := range n.Branches {
		t.qualify(&n.Branches[i], within)
	}
	for _, inner := range []*avro.SchemaNode{n.Items, n.Values} {
		if inner != nil {
			t.qualify(inner, within)
		}
	}
}

// unnamed are the types that are not references and have no name.
var unnamed = []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", "union"}

// Follow returns the definition that a reference names.
func (t Tree) Follow(n *avro.SchemaNode) *avro.SchemaNode {
	if named := t.named[n.Type]; named != nil {
		return named
	}
	return n
}

func isNamed(n *avro.SchemaNode) bool {
	return n.Type == "record" || n.Type == "error" || n.Type == "enum" || n.Type == "fixed"
}

// KindOf returns the type; error, which is a record on the wire, is returned as record.
func KindOf(n *avro.SchemaNode) string {
	if n.Type == "error" {
		return "record"
	}
	return n.Type
}

// Subject returns the full name of the record that avsc describes: the subject of its versions, and the type of its messages.
func Subject(avsc string) (string, error) {
	t, err := Parse(avsc)
	if err != nil {
		return "", err
	}
	if t.Root.Type != "record" {
		return "", fmt.Errorf("the schema is of type %s, want a record", t.Root.Type)
	}
	return FullName(t.Root), nil
}

// Describe returns a type as text.
func (t Tree) Describe(n *avro.SchemaNode) string {
	switch KindOf(n) {
	case "union":
		var branches []string
		for i := range n.Branches {
			branches = append(branches, t.Describe(&n.Branches[i]))
		}
		return "union of " + strings.Join(branches, ", ")
	case "array":
		return "array of " + t.Describe(n.Items)
	case "map":
		return "map of " + t.Describe(n.Values)
	case "record", "enum":
		return KindOf(n) + " " + FullName(n)
	}
	text := n.Type // a primitive, or the name of a type defined elsewhere
	if n.Type == "fixed" {
		text = fmt.Sprintf("fixed %s of %d bytes", FullName(n), n.Size)
	}
	if logical := DescribeLogical(n); logical != "" {
		return fmt.Sprintf("%s (%s)", text, logical)
	}
	return text
}

// DescribeLogical returns a logical type as text, such as "decimal 9,2", or "".
func DescribeLogical(n *avro.SchemaNode) string {
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

// maxPath limits the bytes of a path, and of a name in it. Each value in a map has a path with the map's key: with a key of four megabytes, the
// paths of a million values would take terabytes one after the other. A longer path ends at a value around the one that it is for.
const maxPath = 400

// InPath returns the path of a field.
func InPath(path, field string) string {
	if len(path) > maxPath {
		return path
	}
	if len(field) > maxPath {
		field = strings.ToValidUTF8(field[:maxPath], "") + "…"
	}
	if path == "" {
		return field
	}
	return path + "." + field
}

// AtIndex returns the path of an item of a list.
func AtIndex(path string, i int) string {
	if len(path) > maxPath {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
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

// FullName returns the name of a named type with its namespace.
func FullName(n *avro.SchemaNode) string {
	if n.Namespace == "" || strings.Contains(n.Name, ".") {
		return n.Name
	}
	return n.Namespace + "." + n.Name
}

// NamespaceOf returns the namespace of names within n that have no dot.
func NamespaceOf(n *avro.SchemaNode) string {
	full := FullName(n)
	return full[:max(0, strings.LastIndexByte(full, '.'))]
}

// Guard turns a decoder's panic into an error: bytes from outside caused it, and other messages must still be processed.
func Guard(decode func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder panicked: %v", p)
		}
	}()
	return decode()
}
