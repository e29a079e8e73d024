package protobuf

import (
	"fmt"
	"io/fs"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/internal/payload"
)

// Declare returns the messages of a .proto file that are not within others: each of them may be sent.
func (*format) Declare(files fs.FS, path string) (all []payload.Declared, err error) {
	with, err := collect(files, path, nil)
	if err != nil {
		return nil, err
	}
	file, err := compile(payload.SourceOf(with))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range file.Messages().Len() {
		all = append(all, payload.Declared{Name: string(file.Messages().Get(i).FullName()), Files: with, Message: file.Messages().Get(i)})
	}
	return all, nil
}

// Diff compares the fields of a message, and of the messages within it, by their numbers, by which the wire knows them.
func (*format) Diff(name string, from, to payload.Source) ([]payload.Change, error) {
	var of [2]protoreflect.MessageDescriptor
	for i, s := range []payload.Source{from, to} {
		file, err := compile(s)
		if err != nil {
			return nil, err
		}
		if of[i], _ = find(file.Messages(), protoreflect.FullName(name), nil); of[i] == nil {
			return nil, fmt.Errorf("the schema has no message %s", name)
		}
	}
	d := differ{seen: make(map[protoreflect.FullName]bool)}
	d.message("", of[0], of[1])
	return d.changes, nil
}

type differ struct {
	seen    map[protoreflect.FullName]bool
	changes []payload.Change
}

func (d *differ) add(path, what string, args ...any) {
	d.changes = append(d.changes, payload.Change{Path: path, What: fmt.Sprintf(what, args...)})
}

func (d *differ) message(path string, from, to protoreflect.MessageDescriptor) {
	if d.seen[to.FullName()] {
		return
	}
	d.seen[to.FullName()] = true
	for i := range to.Fields().Len() {
		f := to.Fields().Get(i)
		at := within(path, f)
		old := from.Fields().ByNumber(f.Number())
		if old == nil {
			d.add(at, "added, number %d, %s", f.Number(), describe(f))
			continue
		}
		if old.Name() != f.Name() {
			d.add(at, "was %s", old.Name())
		}
		if was, is := describe(old), describe(f); was != is {
			d.add(at, "was %s, is %s", was, is)
		} else if f.Message() != nil {
			d.message(at, old.Message(), f.Message())
		} else if f.Enum() != nil {
			d.enum(at, old.Enum(), f.Enum())
		}
	}
	for i := range from.Fields().Len() {
		if f := from.Fields().Get(i); to.Fields().ByNumber(f.Number()) == nil {
			reserved := ""
			if !to.ReservedRanges().Has(f.Number()) {
				reserved = "; its number is not reserved"
			}
			d.add(within(path, f), "removed, was number %d, %s%s", f.Number(), describe(f), reserved)
		}
	}
}

func (d *differ) enum(path string, from, to protoreflect.EnumDescriptor) {
	for i := range to.Values().Len() {
		v := to.Values().Get(i)
		if old := from.Values().ByNumber(v.Number()); old == nil {
			d.add(path, "value %s added", v.Name())
		} else if old.Name() != v.Name() {
			d.add(path, "value %s was %s", v.Name(), old.Name())
		}
	}
	for i := range from.Values().Len() {
		if v := from.Values().Get(i); to.Values().ByNumber(v.Number()) == nil {
			d.add(path, "value %s removed", v.Name())
		}
	}
}

func within(path string, f protoreflect.FieldDescriptor) string {
	return strings.TrimPrefix(path+"."+string(f.Name()), ".")
}

// describe returns a field's type as text.
func describe(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	switch {
	case f.IsMap():
		return "map of " + describe(f.MapKey()) + " to " + describe(f.MapValue())
	case f.Message() != nil:
		kind = string(f.Message().FullName())
	case f.Enum() != nil:
		kind = "enum " + string(f.Enum().FullName())
	}
	switch one := f.ContainingOneof(); {
	case f.IsList():
		return "repeated " + kind
	case one != nil && !one.IsSynthetic():
		return kind + " in oneof " + string(one.Name())
	case f.HasOptionalKeyword():
		return "optional " + kind
	}
	return kind
}
