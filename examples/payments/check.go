package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/admin"
)

// totals are counted while the story is told: the messages that were written to the outbox, but for receipts, with what
// was in it before; the commands that were refused; and the payments, those before and those of this run.
type totals struct {
	written  int
	refused  int
	before   int
	payments int
}

// openBooks counts what an earlier run of the example has left.
func (b *bank) openBooks(ctx context.Context, operator *admin.Admin) error {
	pending, dead, err := b.outboxCounts(ctx, operator)
	if err != nil {
		return err
	}
	b.totals.written = pending + dead
	b.totals.before, err = b.count(ctx, "SELECT COUNT(*) FROM payments_payments")
	return err
}

func (b *bank) countPayments(ctx context.Context) (err error) {
	all, err := b.count(ctx, "SELECT COUNT(*) FROM payments_payments")
	b.totals.payments = all - b.totals.before
	return err
}

// outboxCounts counts what waits in the outbox, and what is dead there.
func (b *bank) outboxCounts(ctx context.Context, operator *admin.Admin) (pending, dead int, err error) {
	topics, err := operator.Stats(ctx)
	for _, topic := range topics {
		pending += topic.Pending
		dead += topic.Dead
	}
	return pending, dead, err
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
	operator, err := admin.New(b.DB, admin.Config{Dialect: b.Dialect, Tables: inTables}, b.Logger)
	if err != nil {
		return err
	}
	letters, err := operator.DeadLetters(ctx, admin.Filter{Limit: admin.MaxLimit})
	if err != nil {
		return err
	}
	pending, deadInOutbox, err := b.outboxCounts(ctx, operator)
	if err != nil {
		return err
	}
	var accepted int
	o.duplicates, o.doubled, accepted = b.post.counts()
	o.refused, o.dead = b.totals.refused, len(letters)
	o.duplicates -= o.refused // these were not absorbed the second time, but paid
	// Each payment has written a receipt.
	written := b.totals.written + b.totals.payments
	o.missing = written - accepted - pending - deadInOutbox
	b.say("the outbox: %d messages written = %d published + %d pending + %d dead", written, accepted, pending, deadInOutbox)
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
		noReceipt = "NOT EXISTS (SELECT 1 FROM payments_receipts r WHERE r.command_id = p.command_id)"
		repeated  = "GROUP BY command_id HAVING COUNT(*) > 1) AS repeated"
		paid      = "(SELECT COALESCE(SUM(p.cents), 0) FROM payments_payments p WHERE p.account = a.name)"
	)
	for _, question := range []struct {
		answer *int
		query  string
	}{
		{&o.commands, "SELECT COUNT(*) FROM payments_commands"},
		{&o.payments, "SELECT COUNT(*) FROM payments_payments"},
		{&o.receipts, "SELECT COUNT(*) FROM payments_receipts"},
		{&o.unpaid, "SELECT COUNT(*) FROM payments_commands c WHERE " + noPayment},
		{&o.paidTwice, "SELECT COUNT(*) FROM (SELECT 1 FROM payments_payments " + repeated},
		{&o.withoutReceipt, "SELECT COUNT(*) FROM payments_payments p WHERE " + noReceipt},
		{&o.filedTwice, "SELECT COUNT(*) FROM (SELECT 1 FROM payments_receipts " + repeated},
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
