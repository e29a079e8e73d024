package verify

import (
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/expr"
)

// empty reports the fields of an event that may be null or missing, and without which the expression fails. It evaluates the expression
// with an event that has all fields, and then without each of them.
func (f *fields) empty(path, typ string, shape *expr.Shape, x *expr.Expr, want expr.Type) {
	fails := func(flag bool, without []string) bool {
		v, err := f.eval(x, shape, flag, without)
		return err != nil || v == nil && want != expr.Any
	}
	then := "the saga is parked"
	if strings.HasPrefix(path, "start") {
		then = "no saga starts"
	}
	for _, flag := range []bool{false, true} {
		for _, names := range x.Named("event", shape) {
			field := shape.At(names)
			if field == nil || !field.Null && !field.Absent || fails(flag, nil) || !fails(flag, names) {
				continue
			}
			at := "event." + strings.Join(names, ".")
			if field.Absent {
				f.report("message-null", path, nil, "%s of %s may be missing, and then %s: say has(%s) ? … : …", at, typ, then, at)
			} else {
				f.report("message-null", path, nil, "%s of %s may be null, and then %s: say %s != null ? … : …", at, typ, then, at)
			}
		}
	}
}

// pathsOf returns the fields of the event that an expression uses, by their names.
func pathsOf(x *expr.Expr) (all [][]string) {
	for _, u := range x.Uses() {
		if u.Object == "event" {
			all = append(all, strings.Split(u.Path, "."))
		}
	}
	return all
}

// resultOf returns what the value of an expression is, if it cannot be of the type, since it copies or computes it from fields whose types
// are known; else "".
func (f *fields) resultOf(x *expr.Expr, shape *expr.Shape, want expr.Type) string {
	if want == expr.Any {
		return ""
	}
	for _, r := range x.Results("event", shape) {
		switch {
		case r.Fields != nil:
			return "an object"
		case r.Elements != nil:
			return "a list"
		case r.Values != nil:
			return "a map"
		case r.Type != "" && r.Type != want && (r.Type != expr.Int || want != expr.Double):
			return "of type " + string(r.Type)
		case r.Number && (want == expr.String || want == expr.Bool):
			return "a number"
		}
	}
	if slices.ContainsFunc(pathsOf(x), func(names []string) bool { at := shape.At(names); return at == nil || at.Type == "" }) {
		return ""
	}
	v, err := f.eval(x, shape, true, nil)
	_, isText := v.(string)
	_, isBool := v.(bool)
	_, isDouble := v.(float64)
	switch {
	case err != nil || v == nil:
		return ""
	case isText && want != expr.String:
		return "a text"
	case isBool && want != expr.Bool:
		return "true or false"
	case isDouble && want == expr.Int:
		return "of type double"
	case !isText && want == expr.String, !isBool && want == expr.Bool:
		return "no " + string(want)
	}
	return ""
}

// eval evaluates an expression with an event that has all fields but the one.
func (f *fields) eval(x *expr.Expr, shape *expr.Shape, flag bool, without []string) (any, error) {
	event := sampleOf(shape, x.Names(), flag, 0)
	if without != nil {
		empty(event, without, shape.At(without).Absent)
	}
	data := make(map[string]any, len(f.s.Data))
	for name, t := range f.s.Data {
		data[name] = sample(t, flag)
	}
	objects := map[string]any{
		"event": event, "data": data, "saga": map[string]any{"id": "x", "key": "x", "reason": "x", "compensated": []any{}}, expr.Now: time.Unix(0, 0),
	}
	withElements(f.s, objects)
	return x.Eval(objects)
}

// empty removes a field of a value, or sets it to null, also in the elements of lists.
func empty(in any, names []string, remove bool) {
	switch in := in.(type) {
	case []any:
		for _, element := range in {
			empty(element, names, remove)
		}
	case map[string]any:
		switch {
		case len(names) > 1:
			empty(in[names[0]], names[1:], remove)
		case remove:
			delete(in, names[0])
		default:
			in[names[0]] = nil
		}
	}
}

// These limit the objects, lists and maps within each other that a sample has: with all fields, and with the fields that an expression names.
const (
	maxWhole = 4
	maxNamed = 12
)

// sampleOf returns a value of a shape with its fields, and maps with the names of an expression as keys.
func sampleOf(s *expr.Shape, names []string, flag bool, depth int) any {
	switch {
	case s == nil || depth > maxNamed:
		return nil
	case s.Fields != nil:
		fields := make(map[string]any, len(s.Fields))
		for name, of := range s.Fields {
			if depth < maxWhole || slices.Contains(names, name) {
				fields[name] = sampleOf(of, names, flag, depth+1)
			}
		}
		return fields
	case s.Elements != nil:
		return []any{sampleOf(s.Elements, names, flag, depth+1)}
	case s.Values != nil:
		values := map[string]any{"x": sampleOf(s.Values, names, flag, depth+1)}
		for _, key := range names {
			values[key] = sampleOf(s.Values, names, flag, depth+1)
		}
		return values
	}
	if s.Number || s.Type == "" && flag {
		return 1.0 // a text otherwise
	}
	return sample(s.Type, flag)
}
