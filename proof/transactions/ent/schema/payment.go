// Package schema has the entity of the tests.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
)

// Payment is of an order, and may have refunds.
type Payment struct{ ent.Schema }

// Fields of a payment.
func (Payment) Fields() []ent.Field { return []ent.Field{field.String("order_id")} }

// Edges of a payment. One with refunds is stored with several statements, for which ent begins a
// transaction.
func (Payment) Edges() []ent.Edge {
	return []ent.Edge{edge.To("refunds", Payment.Type).From("refund_of").Unique()}
}
