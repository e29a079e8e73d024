package avsc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/avro"
)

// A Change is one difference between two versions of a schema, as text.
type Change struct {
	Path string `json:"path"` // the field, such as buyer.address, lines[].sku or labels{}; empty for the record itself
	What string `json:"what"`
}

// String returns the change in one line.
func (c Change) String() string {
	if c.Path == "" {
		return c.What
	}
	return c.Path + ": " + c.What
}

// Diff returns the changes from one version to another, in the order of the new version's fields; removed fields come last.
// It does not say whether they are compatible (Check does), and ignores layout and custom properties. An error says which of
// the two cannot be parsed.
func Diff(from, to Version) ([]Change, error) {
	old, err := Parse(from.Avsc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from.Label, err)
	}
	next, err := Parse(to.Avsc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", to.Label, err)
	}
	d := comparison{old: old, next: next, seen: make(map[[2]*avro.SchemaNode]bool)}
	d.types(old.Root, next.Root, "")
	return d.found, nil
}

type comparison struct {
	old, next Tree
	seen      map[[2]*avro.SchemaNode]bool
	found     []Change
}

func (d *comparison) add(path, format string, args ...any) {
	d.found = append(d.found, Change{path, fmt.Sprintf(format, args...)})
}

func (d *comparison) types(old, next *avro.SchemaNode, path string) {
	old, next = d.old.Follow(old), d.next.Follow(next)
	pair := [2]*avro.SchemaNode{old, next}
	if d.seen[pair] {
		return
	}
	d.seen[pair] = true
	if KindOf(old) != KindOf(next) {
		d.add(path, "type %s became %s", d.old.Describe(old), d.next.Describe(next))
		return
	}
	if isNamed(next) {
		d.names(old, next, path)
	}
	switch KindOf(next) {
	case "record":
		d.fields(old, next, path)
	case "enum":
		d.symbols(old, next, path)
	case "array":
		d.types(old.Items, next.Items, path+"[]")
	case "map":
		d.types(old.Values, next.Values, path+"{}")
	case "union":
		d.branches(old, next, path)
	case "fixed":
		if old.Size != next.Size {
			d.add(path, "size %d became %d", old.Size, next.Size)
		}
	}
	if was, is := DescribeLogical(old), DescribeLogical(next); was != is {
		d.add(path, "logical type %s became %s", orNone(was), orNone(is))
	}
	d.docs(old.Doc, next.Doc, path)
}

func (d *comparison) names(old, next *avro.SchemaNode, path string) {
	if was, is := FullName(old), FullName(next); was != is {
		d.add(path, "%s %s became %s", KindOf(next), was, is)
	}
	d.aliases(old.Aliases, next.Aliases, path)
}

func (d *comparison) fields(old, next *avro.SchemaNode, path string) {
	kept := make(map[string]bool)
	var was, is []string
	for i := range next.Fields {
		f := &next.Fields[i]
		at := InPath(path, f.Name)
		before := counterpart(f, old.Fields)
		if before == nil {
			d.add(at, "added, %s, %s", d.next.Describe(&f.Type), defaultOf(f))
			continue
		}
		kept[before.Name] = true
		is = append(is, before.Name)
		if before.Name != f.Name {
			d.add(at, "renamed from %s", before.Name)
		}
		d.aliases(before.Aliases, f.Aliases, at)
		d.types(&before.Type, &f.Type, at)
		if a, b := defaultOf(before), defaultOf(f); a != b {
			d.add(at, "%s became %s", a, b)
		}
		d.docs(before.Doc, f.Doc, at)
	}
	for i := range old.Fields {
		f := &old.Fields[i]
		if kept[f.Name] {
			was = append(was, f.Name)
		} else {
			d.add(InPath(path, f.Name), "removed, was %s, %s", d.old.Describe(&f.Type), defaultOf(f))
		}
	}
	if !slices.Equal(was, is) {
		d.add(path, "fields are in another order: %s", strings.Join(is, ", "))
	}
}

func defaultOf(f *avro.SchemaField) string {
	if !f.HasDefault {
		return "no default"
	}
	return "default " + describeDefault(f)
}

func (d *comparison) symbols(old, next *avro.SchemaNode, path string) {
	if added := without(next.Symbols, old.Symbols); len(added) > 0 {
		d.add(path, "symbols added: %s", strings.Join(added, ", "))
	}
	if removed := without(old.Symbols, next.Symbols); len(removed) > 0 {
		d.add(path, "symbols removed: %s", strings.Join(removed, ", "))
	}
	if !slices.Equal(shared(old.Symbols, next.Symbols), shared(next.Symbols, old.Symbols)) {
		d.add(path, "symbols are in another order: %s", strings.Join(next.Symbols, ", "))
	}
	if old.EnumDefault != next.EnumDefault {
		d.add(path, "default symbol %s became %s", orNone(old.EnumDefault), orNone(next.EnumDefault))
	}
}

// branches compares the branches of the same kind and name with each other.
func (d *comparison) branches(old, next *avro.SchemaNode, path string) {
	was, is := d.old.identities(old), d.next.identities(next)
	for i, name := range is {
		if j := slices.Index(was, name); j >= 0 {
			d.types(&old.Branches[j], &next.Branches[i], path)
		}
	}
	if added := without(is, was); len(added) > 0 {
		d.add(path, "branches added: %s", strings.Join(added, ", "))
	}
	if removed := without(was, is); len(removed) > 0 {
		d.add(path, "branches removed: %s", strings.Join(removed, ", "))
	}
	if !slices.Equal(shared(was, is), shared(is, was)) {
		d.add(path, "branches are in another order: %s", strings.Join(is, ", "))
	}
}

// identities returns the names that distinguish the branches of a union.
func (t Tree) identities(union *avro.SchemaNode) (all []string) {
	for i := range union.Branches {
		n := t.Follow(&union.Branches[i])
		if isNamed(n) {
			all = append(all, FullName(n))
		} else {
			all = append(all, n.Type)
		}
	}
	return all
}

func (d *comparison) aliases(old, next []string, path string) {
	if added := without(next, old); len(added) > 0 {
		d.add(path, "aliases added: %s", strings.Join(added, ", "))
	}
	if removed := without(old, next); len(removed) > 0 {
		d.add(path, "aliases removed: %s", strings.Join(removed, ", "))
	}
}

func (d *comparison) docs(old, next, path string) {
	if old != next {
		d.add(path, "documentation changed")
	}
}

func without(all, those []string) (rest []string) {
	for _, s := range all {
		if !slices.Contains(those, s) {
			rest = append(rest, s)
		}
	}
	return rest
}

func shared(all, those []string) []string { return without(all, without(all, those)) }

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
