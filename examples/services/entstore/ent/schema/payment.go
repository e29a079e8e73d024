package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Payment is a row of payments.
type Payment struct{ ent.Schema }

// Fields returns its columns.
func (Payment) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").StorageKey("order_id"), field.String("customer"), field.Int64("cents"), field.Time("charged_at").Default(time.Now),
	}
}
