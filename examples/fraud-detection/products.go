package main

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
)

// Topics of the products service, and what their events say. That of a reservation is the order
// that it is for.
const (
	productCreated = "products.created"
	stockReserved  = "products.reserved"
)

type product struct {
	ID string `json:"id"`
}

// products is the service that keeps the stock.
type products struct{ *service }

func newProducts(p *pipes.Pipes, bus *noisyBus) (*products, error) {
	s, err := newService(p, "products", bus)
	if err != nil {
		return nil, err
	}
	own := &products{s}
	return own, own.on(orderChanged, stockReserved, own.moveStock)
}

func (p *products) create(ctx context.Context, id string, stock int) error {
	return postbox.InTx(ctx, p.db, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO fraud_products (id, delivered, stock) VALUES ($1, $2, $2)", id, stock)
		if err != nil {
			return err
		}
		return p.publish(ctx, productCreated, id, product{ID: id})
	})
}

// moveStock takes from the stock what an order needs, and puts back what a cancelled one does not
// need any more. Events of an order have a key in common, so it is never cancelled first.
func (p *products) moveStock(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, changed, err := received[order](msg)
	if err != nil {
		return nil, err
	}
	const move = "UPDATE fraud_products SET stock = stock + $1 WHERE id = $2"
	switch changed.Status {
	case placed:
		if _, err := tx.ExecContext(ctx, move, -changed.Quantity, changed.ProductID); err != nil {
			return nil, err
		}
		event, err := newEvent(ctx, changed.ID, changed)
		return []*message.Message{event}, err
	case cancelled:
		_, err := tx.ExecContext(ctx, move, changed.Quantity, changed.ProductID)
		return nil, err
	default:
		return nil, nil
	}
}
