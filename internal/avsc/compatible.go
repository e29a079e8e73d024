package avsc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/avro"
)

// A Version is a schema with a label: "version 3", a file, a revision.
type Version struct {
	Label string
	Avsc  string
}

// A Problem is one reason why a new version is incompatible with an earlier one.
type Problem struct {
	Direction Level  `json:"direction"` // Backward: the new version cannot read the earlier one; Forward: vice versa
	Earlier   string `json:"earlier"`   // Label of the earlier version
	Path      string `json:"path"`      // the field, such as buyer.address, lines[].sku or labels{}; empty for the record itself
	Reason    string `json:"reason"`
	Remedy    string `json:"remedy"`
}

// String returns the problem in one line.
func (p Problem) String() string {
	where := "the record"
	if p.Path != "" {
		where = "field " + p.Path
	}
	who := "the new version cannot read " + p.Earlier
	if p.Direction == Forward {
		who = p.Earlier + " cannot read the new version"
	}
	return fmt.Sprintf("%s: %s: %s; %s", who, where, p.Reason, p.Remedy)
}

// Check compares next with earlier versions, oldest first, as level requires, and returns every incompatibility. It applies
// Avro's schema resolution to all data that the writer could have written: all branches of a union, all symbols of an enum.
// A mark of package schemas/personal may be added or removed, but not changed.
// Avro does not define how logical types resolve. Check lets one be added or removed, but not changed into another, since a
// time in milliseconds would be read as one in microseconds without an error.
//
// An error says which schema cannot be parsed, and why.
func Check(level Level, next Version, earlier ...Version) ([]Problem, error) {
	backward, forward := level.directions()
	if !backward && !forward && level != None {
		return nil, fmt.Errorf("unknown compatibility level %q: ParseLevel names the levels", level)
	}
	n, err := Parse(next.Avsc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", next.Label, err)
	}
	if !level.Transitive() && len(earlier) > 1 {
		earlier = earlier[len(earlier)-1:]
	}
	var all []Problem
	for _, v := range slices.Backward(earlier) {
		e, err := Parse(v.Avsc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Label, err)
		}
		if backward {
			all = append(all, problems(Backward, v.Label, n, e)...)
		}
		if forward {
			all = append(all, problems(Forward, v.Label, e, n)...)
		}
	}
	return all, nil
}

// problems returns the reasons why reader cannot read data of writer. In direction Backward the reader is the new version. If
// it finds none, it also runs the library's check, which reports only one problem, but resolves payloads later.
func problems(direction Level, earlier string, reader, writer Tree) []Problem {
	r := resolve(reader, writer, direction == Backward)
	if len(r.found) == 0 {
		var its *avro.CompatibilityError
		if err := avro.CheckCompatibility(writer.Schema, reader.Schema); errors.As(err, &its) {
			r.add(strings.TrimPrefix(its.Path, "(root)"), its.Detail, r.keep("the present form"))
		}
	}
	for i := range r.found {
		r.found[i].Direction, r.found[i].Earlier = direction, earlier
	}
	return r.found
}

// Misread returns an error if reader would read a value of writer as another value without an error of the library.
func Misread(reader, writer Tree) error {
	return resolve(reader, writer, true).misread
}

// A resolution walks both schemas together, as a reader does. Source: Apache Avro 1.12 specification, "Schema Resolution" and
// "Aliases".
type resolution struct {
	reader, writer Tree
	newReads       bool
	seen           map[[2]*avro.SchemaNode]bool // ends the walk of recursive types
	found          []Problem
	misread        error // first problem that the library would not notice
}

func resolve(reader, writer Tree, newReads bool) *resolution {
	r := &resolution{reader: reader, writer: writer, newReads: newReads, seen: make(map[[2]*avro.SchemaNode]bool)}
	r.read(reader.Root, writer.Root, "")
	return r
}

func (r *resolution) add(path, reason, remedy string) {
	r.found = append(r.found, Problem{Path: path, Reason: reason, Remedy: remedy})
}

// say selects the text for the case that the reader is the new version, or the old one.
func (r *resolution) say(newReads, oldReads string) string {
	if r.newReads {
		return newReads
	}
	return oldReads
}

func (r *resolution) keep(what string) string {
	return "keep " + what + ", or make it a new field with a default"
}

func (r *resolution) read(reader, writer *avro.SchemaNode, path string) {
	reader, writer = r.reader.Follow(reader), r.writer.Follow(writer)
	pair := [2]*avro.SchemaNode{reader, writer}
	if r.seen[pair] {
		return
	}
	r.seen[pair] = true
	switch {
	case writer.Type == "union":
		for i := range writer.Branches {
			branch := r.writer.Follow(&writer.Branches[i])
			if reader.Type == "union" {
				r.readByBranch(reader, branch, path)
			} else {
				r.read(reader, branch, path)
			}
		}
	case reader.Type == "union":
		r.readByBranch(reader, writer, path)
	case KindOf(reader) == KindOf(writer):
		r.readSame(reader, writer, path)
	case !promotes(writer.Type, reader.Type):
		was, is := r.writer.Describe(writer), r.reader.Describe(reader)
		r.add(path, r.say(
			fmt.Sprintf("%s cannot be read as %s", was, is),
			fmt.Sprintf("readers want %s and cannot read %s", is, was),
		), r.say(
			"keep the type, widen it (int, long, float, double; string and bytes), or make it a new field with a default",
			r.keep("the type"),
		))
	}
}

func (r *resolution) readByBranch(union, writer *avro.SchemaNode, path string) {
	if branch := r.branchFor(union, writer); branch != nil {
		r.read(branch, writer, path)
		return
	}
	r.add(path, r.say(
		fmt.Sprintf("%s is written, and no branch of the union reads it", r.writer.Describe(writer)),
		fmt.Sprintf("readers have no branch for %s", r.writer.Describe(writer)),
	), r.say("keep that branch", "leave that branch out until all readers have it"))
}

func (r *resolution) readSame(reader, writer *avro.SchemaNode, path string) {
	if isNamed(reader) && !sameName(reader, writer) {
		was, is := FullName(writer), FullName(reader)
		r.add(path, fmt.Sprintf("%s %s cannot be read as %s: another name", KindOf(writer), was, is),
			r.say(fmt.Sprintf(`keep the name, or add "aliases": [%q]`, was), "keep the name"))
		return
	}
	switch KindOf(reader) {
	case "record":
		r.readRecord(reader, writer, path)
	case "enum":
		r.readEnum(reader, writer, path)
	case "array":
		r.read(reader.Items, writer.Items, path+"[]")
	case "map":
		r.read(reader.Values, writer.Values, path+"{}")
	case "fixed":
		if reader.Size != writer.Size {
			r.add(path, fmt.Sprintf("a fixed of %d bytes cannot be read as one of %d", writer.Size, reader.Size),
				r.keep("the size"))
			return
		}
	}
	if is, was := DescribeLogical(reader), DescribeLogical(writer); is != was && is != "" && was != "" {
		reason := fmt.Sprintf("a %s would be read as %s, as another value", was, is)
		r.add(path, reason, r.keep("the logical type"))
		if r.misread == nil {
			r.misread = fmt.Errorf("field %s: %s", path, reason)
		}
	}
}

func (r *resolution) readRecord(reader, writer *avro.SchemaNode, path string) {
	for i := range reader.Fields {
		f := &reader.Fields[i]
		at := InPath(path, f.Name)
		if from := counterpart(f, writer.Fields); from != nil {
			r.read(&f.Type, &from.Type, at)
			is, _ := f.Props["personal"].(string)
			if was, _ := from.Props["personal"].(string); is != was && is != "" && was != "" {
				r.add(at, fmt.Sprintf("values that were marked as personal (%s) cannot be read as %s", was, is), r.keep("the kind of personal data"))
			}
			continue
		}
		if f.HasDefault {
			continue
		}
		if r.newReads {
			r.add(at, "it is new and has no default for messages that do not have it",
				"give it one, such as "+r.exampleDefault(&f.Type)+r.perhapsRenamed(f, reader, writer))
		} else {
			r.add(at, "it was removed, and readers have no default for it",
				"keep it, and remove it only after a version in which it has a default")
		}
	}
}

// perhapsRenamed suggests an alias if exactly one field of the same type exists in the writer and not in the reader.
func (r *resolution) perhapsRenamed(f *avro.SchemaField, reader, writer *avro.SchemaNode) string {
	read := make(map[string]bool)
	for i := range reader.Fields {
		if from := counterpart(&reader.Fields[i], writer.Fields); from != nil {
			read[from.Name] = true
		}
	}
	var gone []string
	for i := range writer.Fields {
		w := &writer.Fields[i]
		if !read[w.Name] && r.writer.Describe(&w.Type) == r.reader.Describe(&f.Type) {
			gone = append(gone, w.Name)
		}
	}
	if len(gone) != 1 {
		return ""
	}
	return fmt.Sprintf(`; or, if it is %s under a new name, "aliases": [%q]`, gone[0], gone[0])
}

func (r *resolution) readEnum(reader, writer *avro.SchemaNode, path string) {
	if reader.HasEnumDefault {
		return
	}
	var unknown []string
	for _, s := range writer.Symbols {
		if !slices.Contains(reader.Symbols, s) {
			unknown = append(unknown, s)
		}
	}
	if len(unknown) == 0 {
		return
	}
	symbols := strings.Join(unknown, ", ")
	if r.newReads {
		r.add(path, fmt.Sprintf("symbols were removed from enum %s, which has no default: %s", FullName(reader), symbols),
			`keep them, or give the enum a "default" symbol`)
	} else {
		r.add(path, fmt.Sprintf("symbols are new, and readers' enum %s has no default for them: %s", FullName(reader), symbols),
			`first roll out an enum with a "default" symbol to all readers, then add symbols`)
	}
}

// exampleDefault returns a default that a field of that type could have.
func (r *resolution) exampleDefault(n *avro.SchemaNode) string {
	switch n = r.reader.Follow(n); KindOf(n) {
	case "null":
		return `"default": null`
	case "boolean":
		return `"default": false`
	case "int", "long", "float", "double":
		return `"default": 0`
	case "string", "bytes":
		return `"default": ""`
	case "array":
		return `"default": []`
	case "map":
		return `"default": {}`
	case "enum":
		return fmt.Sprintf(`"default": %q`, n.Symbols[0])
	case "union":
		return r.exampleDefault(&n.Branches[0])
	}
	return `"type": ["null", …], "default": null`
}

// promotes reports whether a reader of type reader accepts values written as type writer.
func promotes(writer, reader string) bool {
	switch writer {
	case "int":
		return reader == "long" || reader == "float" || reader == "double"
	case "long":
		return reader == "float" || reader == "double"
	case "float":
		return reader == "double"
	case "string":
		return reader == "bytes"
	case "bytes":
		return reader == "string"
	}
	return false
}

// branchFor returns the branch of a reader's union that reads values of writer: first one with the same name, then one with
// the same name in another namespace, then a wider type.
func (r *resolution) branchFor(union, writer *avro.SchemaNode) *avro.SchemaNode {
	for _, match := range []func(b *avro.SchemaNode) bool{
		func(b *avro.SchemaNode) bool {
			return KindOf(b) == KindOf(writer) && b.Size == writer.Size && (!isNamed(b) || exactName(b, writer))
		},
		func(b *avro.SchemaNode) bool {
			return KindOf(b) == KindOf(writer) && b.Size == writer.Size && isNamed(b) && sameName(b, writer)
		},
		func(b *avro.SchemaNode) bool { return promotes(writer.Type, b.Type) },
	} {
		for i := range union.Branches {
			if b := r.reader.Follow(&union.Branches[i]); match(b) {
				return b
			}
		}
	}
	return nil
}

// exactName compares full names and aliases; an alias without a dot is in the reader's namespace.
func exactName(reader, writer *avro.SchemaNode) bool {
	is, was := FullName(reader), FullName(writer)
	if is == was {
		return true
	}
	space, _ := splitName(is)
	return slices.ContainsFunc(reader.Aliases, func(alias string) bool {
		if !strings.Contains(alias, ".") && space != "" {
			alias = space + "." + alias
		}
		return alias == was
	})
}

// sameName also accepts the same name in another namespace.
func sameName(reader, writer *avro.SchemaNode) bool {
	_, is := splitName(FullName(reader))
	_, was := splitName(FullName(writer))
	return exactName(reader, writer) || is == was || slices.Contains(reader.Aliases, was)
}

func splitName(full string) (namespace, name string) {
	i := strings.LastIndexByte(full, '.')
	return full[:max(i, 0)], full[i+1:]
}
