package personal

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// property is the name of the mark in a schema, and subjectMark its value for the field with the subject's id.
const (
	property    = "personal"
	subjectMark = "subject"
)

var kindName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

// A record has the marks of a record type of a schema, by the names of its fields.
type record struct {
	subject string             // the field with the subject's id; "": the record around it has one
	kinds   map[string]string  // the kind of personal data of a field
	inner   map[string]*record // the marks within a field that is a record, or an array of records
}

func newRecord() *record {
	return &record{kinds: make(map[string]string), inner: make(map[string]*record)}
}

// set stores the mark of a field.
func (r *record) set(name, mark string) error {
	switch {
	case mark == subjectMark && r.subject != "":
		return fmt.Errorf("%s: %s is the subject already", name, r.subject)
	case mark == subjectMark:
		r.subject = name
	case !kindName.MatchString(mark):
		return fmt.Errorf("%s: %q is no kind of personal data: want a word such as email, or subject", name, mark)
	default:
		r.kinds[name] = mark
	}
	return nil
}

// nest stores the marks within a field, if there are any.
func (r *record) nest(name string, inner *record) {
	if !inner.isEmpty() {
		r.inner[name] = inner
	}
}

func (r *record) isEmpty() bool { return r.subject == "" && !r.encrypts() }

// encrypts reports whether a field of the record, or within it, is encrypted.
func (r *record) encrypts() bool {
	if len(r.kinds) > 0 {
		return true
	}
	for _, inner := range r.inner {
		if inner.encrypts() {
			return true
		}
	}
	return false
}

// check returns an error if a field is encrypted and no record around it has a subject.
func (r *record) check(path string, subject bool) error {
	subject = subject || r.subject != ""
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		if !subject {
			return fmt.Errorf(`%s is personal, and no field is the subject: mark the field with the person's id as "personal": "subject"`, inPath(path, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.inner)) {
		if err := r.inner[name].check(inPath(path, name), subject); err != nil {
			return err
		}
	}
	return nil
}

func inPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
