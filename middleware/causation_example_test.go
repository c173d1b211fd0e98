package middleware_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// Two modules that answer each other: each message says where it comes from, until the limit ends
// the loop. In a router, the inbox goes around it: AddMiddleware(inbox.Middleware,
// causation).
func ExampleCausation() {
	answer := func(module, uuid, name string) message.HandlerFunc {
		causation, err := middleware.Causation(middleware.CausationConfig{Module: module, MaxHops: 3})
		must(err)
		return causation(func(*message.Message) ([]*message.Message, error) {
			out := message.NewMessage(uuid, nil)
			out.Metadata.Set("name", name) // Watermill's CQRS marshalers do so
			return []*message.Message{out}, nil
		})
	}
	orders, payments := answer("orders", "order-2", "OrderPlaced"), answer("payments", "payment", "PaymentTaken")

	msg := message.NewMessage("order-1", nil)
	msg.Metadata.Set("name", "OrderPlaced")
	for _, handle := range []message.HandlerFunc{payments, orders, payments, orders} {
		produced, err := handle(msg)
		if err != nil {
			fmt.Println(err)
			return
		}
		msg = produced[0]
		fmt.Println(msg.UUID, "of", msg.Metadata.Get(postbox.MetadataCorrelationID), "because of", msg.Metadata.Get(postbox.MetadataCausationID),
			msg.Metadata.Get(postbox.MetadataCausationPath))
	}
	// Output:
	// payment of order-1 because of order-1 ["payments/OrderPlaced"]
	// order-2 of order-1 because of payment ["payments/OrderPlaced","orders/PaymentTaken"]
	// payment of order-1 because of order-2 ["payments/OrderPlaced","orders/PaymentTaken","payments/OrderPlaced"]
	// causation path: the limit of 3 hops is reached, orders/PaymentTaken would be one more: payments/OrderPlaced → orders/PaymentTaken → payments/OrderPlaced
}
