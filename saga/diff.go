package saga

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// A Change is one thing in which two definitions differ. Was and Is are JSON; nil where there is nothing.
type Change struct {
	// Path says where: steps.payment.timeout. What has a name is found by it, wherever in its list it stands.
	Path string          `json:"path"`
	Was  json.RawMessage `json:"was"`
	Is   json.RawMessage `json:"is"`
}

// Diff gives what changes from one definition to another, in the order of the paths; none where they have the same hash.
// Whether running sagas can be moved is Migrate's to say.
func Diff(from, to *Definition) []Change {
	var was, is any
	_ = json.Unmarshal(from.JSON(), &was) // both were written here
	_ = json.Unmarshal(to.JSON(), &is)
	return diff("", was, is, nil)
}

func diff(path string, was, is any, all []Change) []Change {
	if reflect.DeepEqual(was, is) {
		return all
	}
	before, after := parts(was), parts(is)
	if before == nil || after == nil {
		return append(all, Change{path, text(was), text(is)})
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		at := name
		if path != "" {
			at = path + "." + name
		}
		all = diff(at, before[name], after[name], all)
	}
	return all
}

func text(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	out, _ := json.Marshal(v)
	return out
}

// parts are an object's by their names, and a list's where each has a name of its own; nil where there are none.
func parts(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case []any:
		named := make(map[string]any, len(v))
		for _, one := range v {
			m, _ := one.(map[string]any)
			name, _ := m["name"].(string)
			if name == "" || named[name] != nil {
				return nil
			}
			named[name] = m
		}
		return named
	}
	return nil
}

// String is how a change is printed.
func (c Change) String() string {
	switch {
	case c.Was == nil:
		return fmt.Sprintf("+ %s: %s", c.Path, c.Is)
	case c.Is == nil:
		return fmt.Sprintf("- %s: %s", c.Path, c.Was)
	}
	return fmt.Sprintf("~ %s: %s, was %s", c.Path, c.Is, c.Was)
}
