// Package schema describes the tables for ent.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Limit is a row of limits.
type Limit struct{ ent.Schema }

// Fields returns its columns.
func (Limit) Fields() []ent.Field {
	return []ent.Field{field.String("id").StorageKey("customer"), field.Int64("cents_left")}
}
