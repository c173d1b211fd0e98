package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/queue"
)

// orderChanged is the topic of the orders service. Its events say how the order is now.
const orderChanged = "orders.changed"

type order struct {
	ID        string `json:"id"`
	UserID    string `json:"user_id"`
	ProductID string `json:"product_id"`
	Quantity  int    `json:"quantity"`
	Status    string `json:"status"`
}

// An order is placed, and reserved when the stock is. A review confirms or cancels it.
const (
	placed    = "PLACED"
	reserved  = "RESERVED"
	confirmed = "CONFIRMED"
	cancelled = "CANCELLED"
)

// orders is the service that takes orders. What it needs to know of users and products it hears
// from their services.
type orders struct {
	*service
	check *fraudCheck
}

// fraudQueue has the suspects whose orders wait for a review.
const fraudQueue = "fraud"

func newOrders(p *pipes.Pipes, bus *noisyBus, check *fraudCheck) (*orders, error) {
	s, err := newService(p, "orders", bus)
	if err != nil {
		return nil, err
	}
	o := &orders{s, check}
	return o, errors.Join(
		o.on(userCreated, "", o.addCustomer),
		o.on(productCreated, "", o.addProduct),
		o.on(stockReserved, "", o.markReserved),
		o.later(fraudQueue, userSuspected, orderChanged, o.review, queue.Config{
			Concurrency: 4, // as many calls to the fraud check at a time
			Retry:       postbox.RetryProfile{Attempts: 4, Base: briefly.Base, Cap: briefly.Cap},
			// While the fraud check is away, it is no event's fault: the queue waits, and no
			// attempt counts.
			Classify: func(err error) postbox.ErrorClass {
				if errors.Is(err, errAway) {
					return postbox.Outage
				}
				return postbox.Unclassified
			},
		}),
	)
}

func (o *orders) addCustomer(msg *message.Message) ([]*message.Message, error) {
	tx, created, err := received[user](msg)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(msg.Context(), "INSERT INTO fraud_customers (id) VALUES ($1)", created.ID)
	return nil, err
}

func (o *orders) addProduct(msg *message.Message) ([]*message.Message, error) {
	tx, created, err := received[product](msg)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(msg.Context(), "INSERT INTO fraud_catalogue (id) VALUES ($1)", created.ID)
	return nil, err
}

// errRefused is for customers whose orders have been reviewed: they place no more.
var errRefused = errors.New("the customer is a suspect")

// place takes an order. The update of the customer's row makes it wait for a review of that
// customer, and a review for it, so that no order slips through between the two.
func (o *orders) place(ctx context.Context, placing order) error {
	return postbox.InTx(ctx, o.db, func(ctx context.Context, tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "UPDATE fraud_customers SET orders = orders + 1 WHERE id = $1 AND NOT suspect", placing.UserID)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errRefused, err)
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO fraud_orders (id, user_id, product_id, quantity, status) VALUES ($1, $2, $3, $4, $5)",
			placing.ID, placing.UserID, placing.ProductID, placing.Quantity, placing.Status)
		if err != nil {
			return err
		}
		return o.publish(ctx, orderChanged, placing.ID, placing)
	})
}

func (o *orders) markReserved(msg *message.Message) ([]*message.Message, error) {
	tx, of, err := received[order](msg)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(msg.Context(), `
		UPDATE fraud_orders SET reservations = reservations + 1, status = CASE status WHEN $1 THEN $2 ELSE status END WHERE id = $3`,
		placed, reserved, of.ID)
	return nil, err
}

// review handles a deferred event. It may take its time and fail as it likes: the broker has its
// ack since the event was stored. What it writes, the events that it returns and the end of the
// event commit together.
func (o *orders) review(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, suspected, err := received[user](msg)
	if err != nil {
		return nil, err
	}
	fraud, err := o.check.ask(ctx, suspected.ID) // slow, and it fails at times
	if err != nil {
		return nil, err
	}
	verdict := confirmed
	if fraud {
		verdict = cancelled
	}
	if _, err := tx.ExecContext(ctx, "UPDATE fraud_customers SET suspect = TRUE WHERE id = $1", suspected.ID); err != nil {
		return nil, err
	}
	active, err := activeOrders(ctx, tx, suspected.ID)
	if err != nil {
		return nil, err
	}
	var events []*message.Message
	for _, reviewed := range active {
		reviewed.Status = verdict
		_, err := tx.ExecContext(ctx, "UPDATE fraud_orders SET status = $1, reviews = reviews + 1 WHERE id = $2", verdict, reviewed.ID)
		if err != nil {
			return nil, err
		}
		event, err := newEvent(ctx, reviewed.ID, reviewed)
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return events, nil
}

func activeOrders(ctx context.Context, tx *sql.Tx, userID string) (active []order, err error) {
	rows, err := tx.QueryContext(ctx, `
		SELECT id, user_id, product_id, quantity, status FROM fraud_orders WHERE user_id = $1 AND status <> $2`, userID, cancelled)
	if err != nil {
		return nil, fmt.Errorf("find active orders: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.ID, &o.UserID, &o.ProductID, &o.Quantity, &o.Status); err != nil {
			return nil, fmt.Errorf("find active orders: %w", err)
		}
		active = append(active, o)
	}
	return active, rows.Err()
}
