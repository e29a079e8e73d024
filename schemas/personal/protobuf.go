package personal

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/troupe-go/troupe/internal/protomark"
)

// markedProtobuf reads the marks of a message.
func markedProtobuf(of protoreflect.MessageDescriptor) (*record, error) {
	m := protoMarks{above: make(map[protoreflect.FullName]bool)}
	return m.record("", of)
}

type protoMarks struct {
	above map[protoreflect.FullName]bool // messages around one
}

func (m protoMarks) record(path string, of protoreflect.MessageDescriptor) (*record, error) {
	r := newRecord()
	m.above[of.FullName()] = true
	defer delete(m.above, of.FullName())
	if name := markedExtension(of, make(map[protoreflect.FullName]bool)); name != "" {
		return nil, fmt.Errorf("%s: the extension %s cannot have personal fields", cmp.Or(path, string(of.FullName())), name)
	}
	for i := range of.Fields().Len() {
		f := of.Fields().Get(i)
		name, mark := string(f.Name()), protomark.Of(f)
		at := inPath(path, name)
		if mark == "" {
			inner, err := m.within(at, f)
			if err != nil {
				return nil, err
			}
			r.nest(name, inner)
			continue
		}
		if err := r.set(name, mark); err != nil {
			return nil, fmt.Errorf("field %w", err)
		}
		if f.IsList() || f.IsMap() || !fitsProtobuf(f.Kind(), mark) {
			return nil, fmt.Errorf("field %s cannot be marked as %s: %s", at, mark, wanted(mark))
		}
	}
	return r, nil
}

// within reads the marks of the message in a field.
func (m protoMarks) within(at string, f protoreflect.FieldDescriptor) (*record, error) {
	of := f.Message()
	switch {
	case of == nil:
		return newRecord(), nil
	case !f.IsMap() && !m.above[of.FullName()]:
		return m.record(at, of)
	case !isMarked(of, make(map[protoreflect.FullName]bool)):
		return newRecord(), nil
	case f.IsMap():
		return nil, fmt.Errorf("field %s: the values of a map cannot have personal fields", at)
	}
	return nil, fmt.Errorf("%s: a message that contains itself cannot have personal fields", at)
}

// isMarked reports whether a message, or one in it, has a field with personal data.
func isMarked(of protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[of.FullName()] {
		return false
	}
	seen[of.FullName()] = true
	for i := range of.Fields().Len() {
		f := of.Fields().Get(i)
		if mark := protomark.Of(f); mark != "" && mark != subjectMark || f.Message() != nil && isMarked(f.Message(), seen) {
			return true
		}
	}
	return markedExtension(of, seen) != ""
}

// markedExtension returns the name of an extension of a message, known to this program, that has personal data.
func markedExtension(of protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) (name protoreflect.FullName) {
	if of.ExtensionRanges().Len() == 0 {
		return ""
	}
	protoregistry.GlobalTypes.RangeExtensionsByMessage(of.FullName(), func(x protoreflect.ExtensionType) bool {
		f := x.TypeDescriptor()
		if protomark.Of(f) != "" || f.Message() != nil && isMarked(f.Message(), seen) {
			name = f.FullName()
		}
		return name == ""
	})
	return name
}

func fitsProtobuf(kind protoreflect.Kind, mark string) bool {
	switch kind {
	case protoreflect.StringKind:
		return true
	case protoreflect.BytesKind:
		return mark != subjectMark
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Sint32Kind, protoreflect.Sint64Kind, protoreflect.Uint32Kind,
		protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed32Kind, protoreflect.Sfixed64Kind:
		return mark == subjectMark
	}
	return false
}

// change replaces the values of the marked fields of a message. subject is the one of the message around it.
func (r *record) change(path string, m protoreflect.Message, subject string, c changer) error {
	fields := m.Descriptor().Fields()
	if r.subject != "" {
		f := fields.ByName(protoreflect.Name(r.subject))
		if subject = m.Get(f).String(); subject == "0" && f.Kind() != protoreflect.StringKind {
			subject = "" // as in a field that was not set
		}
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		if kind := r.kinds[name]; kind != "" && m.Has(f) {
			is := field{inPath(path, name), kind, subject}
			if f.Kind() == protoreflect.BytesKind {
				changed, err := c(is, m.Get(f).Bytes())
				if err != nil {
					return err
				}
				m.Set(f, protoreflect.ValueOfBytes(changed))
				continue
			}
			changed, err := c(is, []byte(m.Get(f).String()))
			if err != nil {
				return err
			}
			m.Set(f, protoreflect.ValueOfString(string(changed)))
		}
		inner := r.inner[name]
		if inner == nil || !m.Has(f) {
			continue
		}
		if !f.IsList() {
			if err := inner.change(inPath(path, name), m.Mutable(f).Message(), subject, c); err != nil {
				return err
			}
			continue
		}
		list := m.Mutable(f).List()
		for i := range list.Len() {
			if err := inner.change(fmt.Sprintf("%s[%d]", inPath(path, name), i), list.Get(i).Message(), subject, c); err != nil {
				return err
			}
		}
	}
	return nil
}
