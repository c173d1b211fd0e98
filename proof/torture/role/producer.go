package role

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

const (
	// hands are how many transactions of a producer may be open at a time.
	hands = 4
	// keys share the messages: few, so that each has many.
	keys = 40
	// patience ends a transaction whose database does not answer. Its outcome is then unknown.
	patience = 8 * time.Second
)

var errChangedMind = errors.New("the producer rolls back")

// chance is true once in so many times. What processes do among themselves needs no seed: they are
// killed at any instant anyway, so no run is like another.
func chance(oneIn int) bool { return rand.IntN(oneIn) == 0 } //nolint:gosec // any dice will do

// produce writes messages at a steady rate.
func (p *process) produce(ctx context.Context) error {
	to, err := forwarder.NewPublisher(postbox.Database{DB: p.db, Dialect: postbox.PostgreSQL}, forwarder.PublisherConfig{}, p.logger)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	pulse := time.NewTicker(time.Duration(float64(time.Second) / p.Rate))
	defer pulse.Stop()
	var producing sync.WaitGroup
	for range hands {
		producing.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-pulse.C:
					p.transact(context.WithoutCancel(ctx), to)
				}
			}
		})
	}
	producing.Wait()
	return nil
}

// transact writes one to three messages of one key, or none.
func (p *process) transact(ctx context.Context, to *forwarder.Publisher) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	intents := newIntents()
	for _, i := range intents {
		p.history.Write(record(history.Intended, *i, ""))
	}
	err := postbox.InTx(ctx, p.db, func(ctx context.Context, tx *sql.Tx) error {
		return p.write(ctx, tx, to, intents)
	})
	kind, detail := history.Committed, ""
	if err != nil {
		kind, detail = history.RolledBack, err.Error()
		if errors.Is(err, postbox.ErrCommitUnknown) {
			kind = history.Unknown
		}
	}
	for _, i := range intents {
		r := record(kind, *i, "")
		r.Detail = detail
		p.history.Write(r)
	}
	if err != nil && !errors.Is(err, errChangedMind) {
		_ = wait(ctx, retryPause)
	}
}

func (p *process) write(ctx context.Context, tx *sql.Tx, to *forwarder.Publisher, intents []*ledger.Intent) error {
	messages := make([]*message.Message, len(intents))
	for n, i := range intents {
		if err := i.Write(ctx, tx); err != nil {
			return err
		}
		padding := 0
		if chance(50) {
			padding = large
		}
		var err error
		if messages[n], err = newMessage(*i, padding); err != nil {
			return err
		}
		messages[n].SetContext(ctx)
		if i.Key == "" && chance(3) { // without a key nobody minds the order
			delay.Message(messages[n], delay.For(2*time.Second))
		}
	}
	if err := to.Publish(intents[0].Topic, messages...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if chance(60) { // the ids are taken, and others commit first
		_ = wait(ctx, time.Duration(rand.Int64N(int64(2*time.Second)))) //nolint:gosec // any time will do
	}
	if chance(20) {
		return errChangedMind
	}
	return nil
}

// newIntents makes up what a transaction will write.
func newIntents() []*ledger.Intent {
	topic, key := ledger.Orders, anyKey()
	switch {
	case chance(150):
		topic = ledger.Nowhere
	case chance(3):
		topic = ledger.Payments
	}
	if chance(20) {
		key = ""
	}
	number := 1
	if chance(10) {
		number = 3
	}
	intents := make([]*ledger.Intent, number)
	for n := range intents {
		intents[n] = &ledger.Intent{Message: postbox.NewMessageID(), Key: key, Topic: topic, Plan: newPlan()}
	}
	return intents
}

func newPlan() history.Plan {
	switch n := rand.IntN(1000); { //nolint:gosec // any plan will do
	case n < 3:
		return history.Slow
	case n < 13:
		return history.Poison
	case n < 23:
		return history.Panics
	case n < 45:
		return history.Flaky
	default:
		return history.Plain
	}
}
