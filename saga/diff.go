package saga

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// A Change is one difference between two definitions. Was and Is are JSON, or nil if the part is absent.
type Change struct {
	// Path is the path of the part, such as steps.payment.timeout. A part with a name has the name in its path, not its index in a
	// list.
	Path string          `json:"path"`
	Was  json.RawMessage `json:"was"`
	Is   json.RawMessage `json:"is"`
}

// Diff returns the changes from one definition to another, ordered by path. Definitions with equal hashes have none. It does not show
// whether a running saga can be moved: see Migrate.
func Diff(from, to *Definition) []Change {
	var was, is any
	_ = json.Unmarshal(from.JSON(), &was) // cannot fail: this package wrote both
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

// parts returns the fields of an object by name. If each element of a list has a name of its own, it returns the elements by name. For
// any other value it returns nil.
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

// String returns the change as one line, such as ~ version: 2, was 1.
func (c Change) String() string {
	switch {
	case c.Was == nil:
		return fmt.Sprintf("+ %s: %s", c.Path, c.Is)
	case c.Is == nil:
		return fmt.Sprintf("- %s: %s", c.Path, c.Was)
	}
	return fmt.Sprintf("~ %s: %s, was %s", c.Path, c.Is, c.Was)
}
