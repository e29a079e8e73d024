package personal

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// The tags of struct fields.
const (
	avroTag = "avro"
	jsonTag = "json"
)

// names has the fields of a struct by the names that they have in a payload. It must find the same fields as the library that writes the
// payload, twmb/avro or encoding/json: the value of a field that it does not find is not encrypted.
type names struct {
	of     reflect.Type
	tag    string
	fields map[string][]candidate // the first one is written, unless the second has the same rank
}

// A candidate is a field that has a name. The library writes one of those with the same name.
type candidate struct {
	reflect.StructField // Index begins at the outermost struct
	tagged              bool
}

func namesOf(t reflect.Type, tag string) (names, error) {
	n := names{t, tag, make(map[string][]candidate)}
	if err := n.collect(t, nil); err != nil {
		return n, err
	}
	for _, all := range n.fields {
		slices.SortStableFunc(all, n.compare)
	}
	return n, nil
}

// jsonName matches the names in tags that encoding/json does not ignore.
var jsonName = regexp.MustCompile(`^[\p{L}\p{Nd}!#$%&()*+\-./:;<=>?@\[\]^_{|}~ ]*$`)

// collect adds the fields of t, which is at an index in the outermost struct, and of the structs whose fields are written as fields of t.
func (n names) collect(t reflect.Type, above []int) error {
	for i := range t.NumField() {
		f := t.Field(i)
		f.Index = append(slices.Clone(above), i)
		text := f.Tag.Get(n.tag)
		if text == "-" {
			continue
		}
		name, options, _ := strings.Cut(text, ",")
		inline := n.tag == avroTag && slices.Contains(strings.Split(options, ","), "inline")
		switch {
		case inline && strings.ContainsAny(options, "([="):
			return fmt.Errorf("field %s of %v: the tag has inline and other options: remove these", f.Name, t)
		case n.tag == jsonTag && !jsonName.MatchString(name):
			return fmt.Errorf("field %s of %v: encoding/json ignores the name %q in its tag", f.Name, t, name)
		}
		isStruct := direct(f.Type).Kind() == reflect.Struct
		if isStruct && (f.Anonymous && name == "" || !f.Anonymous && f.IsExported() && inline) {
			if f.Type.Kind() == reflect.Pointer {
				return fmt.Errorf("field %s of %v is an embedded pointer: embed the struct, or name the field", f.Name, t)
			}
			if err := n.collect(f.Type, f.Index); err != nil {
				return err
			}
			continue
		}
		if !f.IsExported() && !(f.Anonymous && isStruct) {
			continue
		}
		c := candidate{f, name != ""}
		if !c.tagged {
			name = f.Name
		}
		n.fields[name] = append(n.fields[name], c)
	}
	return nil
}

// compare orders the candidates of a name: the first one is written. For encoding/json the depth counts more than the tag, and for
// twmb/avro less.
func (n names) compare(a, b candidate) int {
	depth, tag := cmp.Compare(len(a.Index), len(b.Index)), 0
	switch {
	case a.tagged && !b.tagged:
		tag = -1
	case b.tagged && !a.tagged:
		tag = 1
	}
	if n.tag == jsonTag {
		return cmp.Or(depth, tag)
	}
	return cmp.Or(tag, depth)
}

// find returns the field that is written under a name of the schema. In JSON a struct need not have it: then it is neither written nor
// read.
func (n names) find(name string) (f reflect.StructField, is bool, err error) {
	all := n.fields[name]
	if len(all) == 1 || len(all) > 1 && n.compare(all[0], all[1]) != 0 {
		return all[0].StructField, true, nil
	}
	if len(all) > 1 {
		return f, false, fmt.Errorf("%v has more than one field for %s", n.of, name)
	}
	if n.tag == avroTag {
		return f, false, fmt.Errorf("%v has no field for %s", n.of, name)
	}
	for other, all := range n.fields {
		if strings.EqualFold(name, other) { // encoding/json reads it from that name, and writes it under this one
			return f, false, fmt.Errorf("field %s of %v is %q in the schema: set the name in its tag", all[0].Name, n.of, name)
		}
	}
	return f, false, nil
}
