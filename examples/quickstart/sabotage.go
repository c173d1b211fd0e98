package main

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// saboteur makes things go wrong in the shop, and keeps books of it in the database.
type saboteur struct {
	db    *sql.DB
	oneIn int // how rarely it strikes
}

func (s saboteur) strikes() bool { return rand.IntN(s.oneIn) == 0 } //nolint:gosec // any dice will do

// sabotageTables are the books. A delivery is noted before the inbox sees it, in a transaction of
// its own, so also those are there that failed, or were duplicates. An effect is noted in the
// handler's transaction, with the last delivery noted by then: any later delivery of the same event
// is a duplicate.
const sabotageTables = `
	CREATE TABLE IF NOT EXISTS deliveries (
		id         INTEGER PRIMARY KEY AUTOINCREMENT,
		topic      TEXT NOT NULL,
		message_id TEXT NOT NULL
	);
	CREATE TABLE IF NOT EXISTS effects (
		id            INTEGER PRIMARY KEY AUTOINCREMENT,
		topic         TEXT NOT NULL,
		message_id    TEXT NOT NULL,
		last_delivery INTEGER NOT NULL
	);`

// sendSomeTwice returns the bus as one on which some messages come twice, as they do on every bus
// that loses none.
func (s saboteur) sendSomeTwice(bus message.Publisher) message.Publisher { return twiceSender{bus, s} }

type twiceSender struct {
	message.Publisher
	saboteur saboteur
}

// Publish publishes the messages, and some of them once more.
func (p twiceSender) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := p.Publisher.Publish(topic, msg); err != nil {
			return err
		}
		if !p.saboteur.strikes() {
			continue
		}
		if err := p.Publisher.Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

// noteDelivery is a middleware that notes each delivery before the inbox sees it.
func (s saboteur) noteDelivery(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		_, err := s.db.ExecContext(ctx, "INSERT INTO deliveries (topic, message_id) VALUES (?, ?)",
			message.SubscribeTopicFromCtx(ctx), msg.UUID)
		if err != nil {
			return nil, fmt.Errorf("note a delivery: %w", err)
		}
		return next(msg)
	}
}

var errSabotage = errors.New("sabotage: this handler fails after it has written")

// failSometimes is a middleware that notes the handler's effect in the handler's transaction, and
// then lets it fail sometimes: at the worst moment, when all is written.
func (s saboteur) failSometimes(handler message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		events, err := handler(msg)
		if err != nil {
			return nil, err
		}
		ctx := msg.Context()
		tx, ok := postbox.TxFromContext(ctx)
		if !ok {
			return nil, postbox.ErrNoTransaction
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO effects (topic, message_id, last_delivery) SELECT ?, ?, MAX(id) FROM deliveries",
			message.SubscribeTopicFromCtx(ctx), msg.UUID)
		if err != nil {
			return nil, fmt.Errorf("note an effect: %w", err)
		}
		if s.strikes() {
			return nil, errSabotage
		}
		return events, nil
	}
}
