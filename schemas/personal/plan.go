package personal

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A field is a marked field of a payload.
type field struct {
	path    string
	kind    string
	subject string
}

// A changer returns the value that replaces the value of a field.
type changer func(f field, value []byte) ([]byte, error)

// A plan finds the marked fields in values of a Go struct.
type plan struct {
	subject []int // index of the field; nil: the struct around it has one
	fields  []member
	inner   []nested
}

type member struct {
	name  string
	kind  string
	index []int
}

type nested struct {
	name  string
	index []int
	plan  *plan
}

// planOf makes the plan of a struct whose fields are named by tags.
func planOf(r *record, t reflect.Type, tag string) (*plan, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%v: want a struct", t)
	}
	if tag == jsonTag && implements(t, writers) {
		return nil, fmt.Errorf("%v: %w", t, errOwnForm)
	}
	names, err := namesOf(t, tag)
	if err != nil {
		return nil, err
	}
	p := &plan{}
	if r.subject != "" {
		f, is, err := names.find(r.subject)
		if err != nil {
			return nil, err
		}
		if is {
			of := direct(f.Type)
			if of.Kind() != reflect.String && !isWhole(of.Kind()) {
				return nil, fmt.Errorf("field %s is the subject: want a string or a whole number", f.Name)
			}
			if hasOwnForm(of) {
				return nil, fmt.Errorf("field %s is the subject, and of type %v: %w", f.Name, f.Type, errOwnForm)
			}
			p.subject = f.Index
		}
	}
	for name, kind := range r.kinds {
		f, is, err := names.find(name)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		of := direct(f.Type)
		isBytes := of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8 && tag != jsonTag
		if of.Kind() != reflect.String && !isBytes {
			want := wanted("")
			if tag == jsonTag {
				want = "want a string"
			}
			return nil, fmt.Errorf("field %s is personal, and of type %v: %s", f.Name, f.Type, want)
		}
		if hasOwnForm(of) {
			return nil, fmt.Errorf("field %s is personal, and of type %v: %w", f.Name, f.Type, errOwnForm)
		}
		p.fields = append(p.fields, member{name, kind, f.Index})
	}
	for name, within := range r.inner {
		f, is, err := names.find(name)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		if !f.IsExported() && f.Type.Kind() != reflect.Struct {
			return nil, fmt.Errorf("field %s: embed the struct, or name the field", f.Name)
		}
		of := direct(f.Type)
		if of.Kind() == reflect.Slice || of.Kind() == reflect.Array {
			if tag == jsonTag && implements(of, writers) {
				return nil, fmt.Errorf("field %s is of type %v: %w", f.Name, f.Type, errOwnForm)
			}
			of = direct(of.Elem())
		}
		inner, err := planOf(within, of, tag)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		p.inner = append(p.inner, nested{name, f.Index, inner})
	}
	if r.subject != "" && p.subject == nil && p.needsSubject() {
		return nil, fmt.Errorf("%v has no field for %s, which is the subject of its personal fields", t, r.subject)
	}
	slices.SortFunc(p.fields, func(a, b member) int { return strings.Compare(a.name, b.name) })
	slices.SortFunc(p.inner, func(a, b nested) int { return strings.Compare(a.name, b.name) })
	return p, nil
}

// needsSubject reports whether the struct, or a struct without a subject below it, has personal fields.
func (p *plan) needsSubject() bool {
	return len(p.fields) > 0 || slices.ContainsFunc(p.inner, func(n nested) bool { return n.plan.subject == nil && n.plan.needsSubject() })
}

var (
	writers = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextAppender]()}
	readers = []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()}

	errOwnForm = errors.New("it has methods that write or read it, so that its form in a payload is not known")
)

// implements reports whether a type, or a pointer to it, implements one of several interfaces.
func implements(t reflect.Type, one []reflect.Type) bool {
	return slices.ContainsFunc(one, func(i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) })
}

// hasOwnForm reports whether a string or a number is written or read by methods of its type.
func hasOwnForm(t reflect.Type) bool { return implements(t, writers) || implements(t, readers) }

// direct returns a type without its pointer.
func direct(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func isWhole(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uint64 }

// change replaces the values of the marked fields of a struct, which is addressable. It copies all that it changes below the struct, since
// the caller's value may refer to it too. subject is the one of the struct around it.
func (p *plan) change(path string, v reflect.Value, subject string, c changer) error {
	if p.subject != nil {
		subject = textOf(v.FieldByIndex(p.subject))
	}
	for _, m := range p.fields {
		at := v.FieldByIndex(m.index)
		if at.Kind() == reflect.Pointer {
			if at.IsNil() {
				continue
			}
			own := reflect.New(at.Type().Elem())
			own.Elem().Set(at.Elem())
			at.Set(own)
			at = own.Elem()
		}
		is := field{inPath(path, m.name), m.kind, subject}
		if at.Kind() == reflect.String {
			changed, err := c(is, []byte(at.String()))
			if err != nil {
				return err
			}
			at.SetString(string(changed))
			continue
		}
		changed, err := c(is, at.Bytes())
		if err != nil {
			return err
		}
		at.SetBytes(changed)
	}
	for _, n := range p.inner {
		if err := n.plan.changeWithin(inPath(path, n.name), v.FieldByIndex(n.index), subject, c); err != nil {
			return err
		}
	}
	return nil
}

// changeWithin is change for a struct, a pointer to one, or a list of them.
func (p *plan) changeWithin(path string, v reflect.Value, subject string, c changer) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		own := reflect.New(v.Type().Elem())
		own.Elem().Set(v.Elem())
		v.Set(own)
		return p.changeWithin(path, own.Elem(), subject, c)
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && !v.IsNil() {
			own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(own, v)
			v.Set(own)
		}
		for i := range v.Len() {
			if err := p.changeWithin(fmt.Sprintf("%s[%d]", path, i), v.Index(i), subject, c); err != nil {
				return err
			}
		}
		return nil
	}
	return p.change(path, v, subject, c)
}

// textOf returns the subject of a field; "" for nil, and for 0, the value of a field that was not set.
func textOf(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch {
	case v.IsZero():
		return ""
	case v.Kind() == reflect.String:
		return v.String()
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	}
	return strconv.FormatUint(v.Uint(), 10)
}

var errNoSubject = errors.New("the field with the subject is empty")
