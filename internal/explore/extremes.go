package explore

import (
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/saga"
)

// extremes adds values to the variables that an expression multiplies or divides: zero, a negative number and one that
// overflows.
func (v *values) extremes() error {
	var texts []string
	mapped := func(m saga.Mapping) {
		for _, text := range m {
			texts = append(texts, text)
		}
	}
	for _, st := range v.spec.Steps {
		texts = append(texts, st.When)
		if st.Command != nil {
			mapped(st.Command.Input)
		}
		if st.Call != nil {
			mapped(st.Call.Body)
		}
		if c := st.Compensation; c != nil && c.Command != nil {
			mapped(c.Command.Input)
		}
		for _, a := range slices.Concat(st.Success, st.Failure) {
			texts = append(texts, a.When)
			mapped(a.Set)
		}
	}
	for _, e := range v.spec.Ends {
		texts = append(texts, e.When)
	}
	slices.Sort(texts)
	for _, text := range texts {
		if !strings.ContainsAny(text, "*/%") {
			continue
		}
		x, err := v.env.Compile(text, expr.Any)
		if err != nil {
			return err
		}
		for _, r := range x.Reads() {
			if r.Object != "data" {
				continue
			}
			switch v.spec.Data[r.Field] {
			case saga.Int:
				v.add(r.Field, int64(0), int64(-1)<<40, int64(1)<<62)
			case saga.Double:
				v.add(r.Field, 0.0, -1e12, 1e300)
			}
		}
	}
	return nil
}

func (v *values) add(name string, more ...any) {
	for _, one := range more {
		if !slices.Contains(v.data[name], one) {
			v.data[name] = append(v.data[name], one)
		}
	}
}
