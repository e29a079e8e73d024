package explore

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/saga"
)

// values has the values for variables and for the fields of events: on both sides of each value that a condition compares
// them with.
type values struct {
	spec saga.Spec
	env  *expr.Env
	data map[string][]any
}

// maxCombinations is the maximum number of combinations of values for a start or an answer.
const maxCombinations = 64

// newValues returns the values that the variables and events of a definition take. given reports that the variables at the
// start are given.
func newValues(spec saga.Spec, given bool) (*values, error) {
	env, err := expr.NewEnv(map[string]expr.Fields{
		"data": spec.Data, "event": nil,
		"saga": {"id": expr.String, "key": expr.String, "reason": expr.String, "compensated": expr.Any},
	})
	if err != nil {
		return nil, err
	}
	for _, st := range spec.Steps {
		if st.ForEach == nil {
			continue
		}
		if env, err = env.With(map[string]expr.Type{st.ForEach.As: expr.Any, "index": expr.Int}); err != nil {
			return nil, err
		}
	}
	v := &values{spec, env, make(map[string][]any)}
	var conditions []string
	for _, st := range spec.Steps {
		conditions = append(conditions, st.When)
		for _, a := range slices.Concat(st.Success, st.Failure) {
			conditions = append(conditions, a.When)
		}
	}
	for _, e := range spec.Ends {
		conditions = append(conditions, e.When)
	}
	for _, a := range cancelEvents(spec) {
		conditions = append(conditions, a.When)
	}
	for name, t := range spec.Data {
		v.data[name] = []any{plainValue(t, name)}
	}
	for _, text := range conditions {
		if err := v.compared(text, "data", v.data, func(name string) saga.Type { return spec.Data[name] }); err != nil {
			return nil, err
		}
	}
	if err := v.extremes(); err != nil {
		return nil, err
	}
	v.data[spec.Key] = v.data[spec.Key][:1]
	if err := v.lists(given); err != nil {
		return nil, err
	}
	return v, nil
}

func plainValue(t saga.Type, name string) any {
	switch t {
	case saga.Int:
		return int64(1)
	case saga.Double:
		return 1.0
	case saga.Bool:
		return true
	}
	return name + "-1"
}

// compared adds to all the values of an object's fields that a condition distinguishes.
func (v *values) compared(text, object string, all map[string][]any, typeOf func(string) saga.Type) error {
	if text == "" {
		return nil
	}
	x, err := v.env.Compile(text, expr.Bool)
	if err != nil {
		return err
	}
	add := func(name string, more ...any) {
		for _, one := range more {
			if !slices.Contains(all[name], one) {
				all[name] = append(all[name], one)
			}
		}
	}
	bounded := make(map[string]bool)
	for _, b := range x.Bounds() {
		if b.Object != object {
			continue
		}
		bounded[b.Field] = true
		switch n := b.Value.(type) {
		case int64:
			if typeOf(b.Field) == saga.Double {
				add(b.Field, float64(n)-1, float64(n), float64(n)+1)
				continue
			}
			add(b.Field, n-1, n, n+1)
		case float64:
			add(b.Field, n-1, n, n+1)
		case string:
			add(b.Field, n)
			if b.Ordered {
				add(b.Field, "", n+" ")
			}
		case bool:
			add(b.Field, n, !n)
		}
	}
	for _, r := range x.Reads() {
		if t := typeOf(r.Field); r.Object == object && !bounded[r.Field] && (t == saga.Bool || t == "") {
			add(r.Field, true, false)
		}
	}
	return nil
}

// of returns all combinations of fields that an event which is one of as may have: answers of one type, of which a condition
// chooses.
func (v *values) of(as []saga.Answer) ([]map[string]any, error) {
	fields := make(map[string][]any)
	for _, a := range as {
		if err := v.read(a, fields); err != nil {
			return nil, err
		}
	}
	return combine(fields)
}

// alike returns the answers of as that are the same event as the one at k; none if an earlier one is.
func alike(as []saga.Answer, k int) (all []saga.Answer) {
	for i, a := range as {
		if a.Event != as[k].Event || a.Hop != as[k].Hop {
			continue
		}
		if i < k {
			return nil
		}
		all = append(all, a)
	}
	return all
}

// read adds the values of the fields that a reads.
func (v *values) read(a saga.Answer, fields map[string][]any) error {
	for _, name := range slices.Sorted(maps.Keys(a.Set)) {
		x, err := v.env.Compile(a.Set[name], expr.Any)
		if err != nil {
			return err
		}
		for _, r := range x.Reads() {
			if r.Object != "event" {
				continue
			}
			for _, one := range v.data[name] {
				if !slices.ContainsFunc(fields[r.Field], func(v any) bool { return reflect.DeepEqual(v, one) }) {
					fields[r.Field] = append(fields[r.Field], one)
				}
			}
		}
	}
	if a.Reason != "" {
		x, err := v.env.Compile(a.Reason, expr.Any)
		if err != nil {
			return err
		}
		for _, r := range x.Reads() {
			if r.Object == "event" && fields[r.Field] == nil {
				fields[r.Field] = []any{"no"}
			}
		}
	}
	typeOf := func(string) saga.Type { return "" }
	return v.compared(a.When, "event", fields, typeOf)
}

// starts returns all combinations of the variables that an instance may begin with: the variables that no step sets. If there are
// too many, it returns the first value of each variable, and each other value of one variable with the first ones of the others;
// leftOut says so.
func (v *values) starts() (all []map[string]any, leftOut string) {
	given := maps.Clone(v.data)
	for _, st := range v.spec.Steps {
		for _, a := range slices.Concat(st.Success, st.Failure) {
			for name := range a.Set {
				delete(given, name)
			}
		}
	}
	all, err := combine(given)
	if err == nil {
		return all, ""
	}
	first := make(map[string]any)
	for name, values := range given {
		first[name] = values[0]
	}
	all = []map[string]any{first}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for _, other := range given[name][1:] {
			one := maps.Clone(first)
			one[name] = other
			all = append(all, one)
		}
	}
	return all, "most combinations of the variables at the start are left out: there are more than " + strconv.Itoa(maxCombinations)
}

func combine(fields map[string][]any) ([]map[string]any, error) {
	all := []map[string]any{{}}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var more []map[string]any
		for _, m := range all {
			for _, one := range fields[name] {
				c := maps.Clone(m)
				c[name] = one
				more = append(more, c)
			}
		}
		if all = more; len(all) > maxCombinations {
			return nil, fmt.Errorf("its fields have more than %d combinations of values that conditions compare", maxCombinations)
		}
	}
	return all, nil
}
