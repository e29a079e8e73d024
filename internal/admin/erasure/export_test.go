package erasure

import (
	"maps"
	"slices"
	"strings"
)

// Columns returns the listed columns of each table; nil: no row of it stays.
func Columns() map[string][]string {
	all := make(map[string][]string)
	for name, columns := range without {
		all[name] = strings.Split(columns, ", ")
	}
	for _, t := range tables {
		all[t.name] = nil
		if t.kept != "" {
			all[t.name] = slices.AppendSeq(strings.Split(t.kept, ", "), maps.Keys(t.blank))
		}
	}
	return all
}

// HasData reports whether a table has data of keys.
func HasData(name string) bool {
	return slices.ContainsFunc(tables, func(t table) bool { return t.name == name })
}
