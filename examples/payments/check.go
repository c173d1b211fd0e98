package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// totals are counted while the story is told.
type totals struct {
	before   int // payments of earlier runs
	payments int // and of this one
	refused  int
	requeued int
	opening  admin.Account // of the outbox, with all commands in it
}

// openBooks lets the outbox keep what is published, for a year, and counts what is there before
// anything happens.
func (b *bank) openBooks(ctx context.Context) (err error) {
	_, err = b.operator.ChangeSettings(ctx, outbox, func(stored *admin.Settings) error {
		stored.History = 365 * 24 * time.Hour
		return nil
	})
	if err != nil {
		return err
	}
	if b.totals.opening, err = b.operator.Account(ctx, outbox); err != nil {
		return err
	}
	b.totals.before, err = b.count(ctx, "SELECT COUNT(*) FROM payments_payments")
	return err
}

func (b *bank) countPayments(ctx context.Context) error {
	all, err := b.count(ctx, "SELECT COUNT(*) FROM payments_payments")
	b.totals.payments = all - b.totals.before
	return err
}

// outcome is what the database says in the end, of all runs of the example.
type outcome struct {
	commands, payments, receipts, refused, duplicates, doubled int

	unpaid, paidTwice, withoutReceipt, filedTwice, wrongBalances, dead, missing int
}

// verify compares the books.
func (b *bank) verify(ctx context.Context) error {
	o, err := b.outcome(ctx)
	if err != nil {
		return err
	}
	letters, _, err := b.operator.DeadLetters(ctx, admin.Filter{Limit: 1000})
	if err != nil {
		return err
	}
	closing, err := b.operator.Account(ctx, outbox)
	if err != nil {
		return err
	}
	o.duplicates, o.doubled = b.post.counts()
	o.refused, o.dead = b.totals.refused, len(letters)
	o.duplicates -= o.refused // these were not absorbed the second time, but paid
	// Besides the commands, a receipt for each payment was written, and each command that was
	// requeued once more.
	written := b.totals.opening.Written + b.totals.payments + b.totals.requeued
	o.missing = written - closing.Written
	b.say("the outbox: %d messages written; %d published, %d pending, %d dead", written, closing.Done, closing.Pending, closing.Dead)
	b.say("%s", o)
	return o.verdict()
}

// String returns the last line of the program.
func (o outcome) String() string {
	return fmt.Sprintf("RESULT commands=%d payments=%d receipts=%d refused_and_requeued=%d duplicates_absorbed=%d receipts_published_twice=%d "+
		"unpaid=%d paid_twice=%d without_receipt=%d filed_twice=%d wrong_balances=%d dead=%d missing=%d",
		o.commands, o.payments, o.receipts, o.refused, o.duplicates, o.doubled,
		o.unpaid, o.paidTwice, o.withoutReceipt, o.filedTwice, o.wrongBalances, o.dead, o.missing)
}

// verdict returns what is wrong.
func (o outcome) verdict() error {
	var problems []error
	for _, must := range []struct {
		hold bool
		or   string
	}{
		{o.unpaid == 0, "commands were not paid"},
		{o.paidTwice == 0, "commands were paid twice"},
		{o.withoutReceipt == 0, "payments have no receipt"},
		{o.filedTwice == 0, "receipts were filed twice"},
		{o.commands == o.payments && o.payments == o.receipts, "commands, payments and receipts are not as many"},
		{o.wrongBalances == 0, "balances are not what was deposited less what was paid"},
		{o.dead == 0, "dead letters are left"},
		{o.missing == 0, "what was written to the outbox is not what was published, pending or dead"},
		{o.refused > 0, "no command was refused, so that was not tried"},
		{o.doubled > 0, "no receipt was published twice, so that was not tried"},
		{o.duplicates > 0, "nothing was delivered twice, so that was not tried"},
	} {
		if !must.hold {
			problems = append(problems, errors.New(must.or))
		}
	}
	return errors.Join(problems...)
}

// outcome asks the tables.
func (b *bank) outcome(ctx context.Context) (o outcome, err error) {
	const (
		noPayment = "NOT EXISTS (SELECT 1 FROM payments_payments p WHERE p.command_id = c.id)"
		noReceipt = "NOT EXISTS (SELECT 1 FROM payments_filed r WHERE r.command_id = p.command_id)"
		repeated  = "GROUP BY command_id HAVING COUNT(*) > 1) AS repeated"
		paid      = "(SELECT COALESCE(SUM(p.cents), 0) FROM payments_payments p WHERE p.account = a.name)"
	)
	for _, question := range []struct {
		answer *int
		query  string
	}{
		{&o.commands, "SELECT COUNT(*) FROM payments_commands"},
		{&o.payments, "SELECT COUNT(*) FROM payments_payments"},
		{&o.receipts, "SELECT COUNT(*) FROM payments_filed"},
		{&o.unpaid, "SELECT COUNT(*) FROM payments_commands c WHERE " + noPayment},
		{&o.paidTwice, "SELECT COUNT(*) FROM (SELECT 1 FROM payments_payments " + repeated},
		{&o.withoutReceipt, "SELECT COUNT(*) FROM payments_payments p WHERE " + noReceipt},
		{&o.filedTwice, "SELECT COUNT(*) FROM (SELECT 1 FROM payments_filed " + repeated},
		{&o.wrongBalances, "SELECT COUNT(*) FROM payments_accounts a WHERE a.cents <> a.deposited - " + paid},
	} {
		if *question.answer, err = b.count(ctx, question.query); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (b *bank) count(ctx context.Context, query string) (n int, err error) {
	if err = b.DB.QueryRowContext(ctx, query).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", query, err)
	}
	return n, nil
}
