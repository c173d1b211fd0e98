package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// sale is the event.
type sale struct {
	ID       string `json:"id"`
	Currency string `json:"currency"`
	Cents    int64  `json:"cents"`
}

// sell sells so many things. One sale is wrong: a refund that a till has booked as a sale, with a
// negative amount. Nobody notices until the report is made.
func (a *app) sell(ctx context.Context, number int) error {
	outbox, err := forwarder.NewPublisher(a.Tables(prefix), forwarder.PublisherConfig{}, a.Logger)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	currencies := []string{"EUR", "PLN", "USD"}
	wrong := rand.IntN(number) //nolint:gosec // any dice will do
	for n := range number {
		sold := sale{ID: postbox.NewMessageID(), Currency: currencies[n%len(currencies)], Cents: 1 + rand.Int64N(10_000)} //nolint:gosec // the same dice
		if n == wrong {
			sold.Cents *= -1
		}
		if err := a.book(ctx, outbox, sold); err != nil {
			return fmt.Errorf("book a sale: %w", err)
		}
	}
	return nil
}

// book commits a sale and its event together. The event has the id of the sale, so the same sale is
// never two events.
func (a *app) book(ctx context.Context, outbox message.Publisher, sold sale) error {
	return postbox.InTx(ctx, a.DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO daily_report_sales (id, currency, cents) VALUES ($1, $2, $3)",
			sold.ID, sold.Currency, sold.Cents)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(sold)
		if err != nil {
			return err
		}
		return outbox.Publish(salesTopic, message.NewMessageWithContext(ctx, sold.ID, payload)) // the transaction is in ctx
	})
}
