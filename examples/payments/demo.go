package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// tell lets commands be paid, and an operator help those that could not.
func (b *bank) tell(ctx context.Context, commands int) (err error) {
	if err := b.openAccounts(ctx, commands); err != nil {
		return err
	}
	if err := b.placeCommands(ctx, commands); err != nil {
		return err
	}
	if err := b.openBooks(ctx); err != nil {
		return err
	}
	for _, as := range roles {
		running, err := b.start(ctx, as)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, running.stop()) }()
	}
	// The forwarder takes commands and receipts from the outbox to the broker. It starts after the
	// subscriptions and ends before them, since a GoChannel forgets what finds no subscriber; with
	// RabbitMQ or Kafka it could run anywhere.
	fwd, err := forwarder.New(b.Tables(prefix), b.post, forwarder.Config{
		Classify: b.Classify, BatchSize: b.BatchSize, Retry: soon,
	}, b.Logger)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()
	defer func() { err = errors.Join(err, fwd.Close(), <-ended) }()

	if err := b.waitUntilQuiet(ctx); err != nil {
		return err
	}
	b.say("%d commands were placed, and %d payments made", commands, b.totals.payments)
	if err := b.help(ctx); err != nil {
		return err
	}
	return b.waitUntilQuiet(ctx)
}

// help is what an operator does: look at the dead letters, do something about the reason, and
// requeue them.
func (b *bank) help(ctx context.Context) error {
	letters, _, err := b.operator.DeadLetters(ctx, admin.Filter{Consumer: "teller", Limit: 1000})
	if err != nil {
		return err
	}
	b.totals.refused = len(letters)
	needed := map[string]int64{}
	for i, found := range letters {
		letter, err := b.operator.DeadLetter(ctx, found.ID) // with its payload
		if err != nil {
			return err
		}
		var order payment
		if err := json.Unmarshal(letter.Payload, &order); err != nil {
			return err
		}
		needed[order.Account] += order.Cents
		if i == 0 {
			b.say("%d commands are dead letters, such as number %d: command %s, attempts %d, %q",
				len(letters), letter.ID, letter.MessageID, letter.Attempts, letter.Error)
		}
	}
	for name, cents := range needed {
		if err := b.deposit(ctx, name, cents); err != nil {
			return err
		}
		b.say("%d cents are deposited on %s", cents, name)
	}
	// Each is published again, through the outbox and under its id. Both tellers will get it, and
	// one will pay.
	requeued, err := b.operator.Requeue(ctx, admin.Filter{Consumer: "teller"}, admin.Again{})
	b.totals.requeued = requeued
	b.say("%d dead letters are requeued", requeued)
	return err
}

// waitUntilQuiet returns when all that was sent has arrived and nothing is left to be sent. What
// arrives may be a command whose receipt is still to be sent: so it looks at the post before and
// after the outbox.
func (b *bank) waitUntilQuiet(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		sentBefore, underWay := b.post.underWay()
		waiting, err := b.operator.Account(ctx, outbox)
		if err != nil {
			return err
		}
		if sent, _ := b.post.underWay(); !underWay && waiting.Pending == 0 && sent == sentBefore {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d messages in the outbox, and those under way: %w", waiting.Pending, ctx.Err())
		case <-tick.C:
		}
	}
	return b.countPayments(ctx)
}

func (b *bank) say(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }
