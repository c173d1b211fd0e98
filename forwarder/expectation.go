package forwarder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Expectation says which consumers have to handle the messages of a topic, and within which time:
// see package receipts.
type Expectation struct {
	// Topic is the topic of the messages. The consumers must know it under the same name. Required.
	Topic string
	// Consumers are the names that the receipts have: those of the consumers' inboxes or handlers.
	// Required.
	Consumers []string
	// Within is the time from when a message is written, or from the time that its delay sets,
	// until its receipt is due. It includes the rest of the transaction, the outbox, the broker and
	// the way back. At least 1 ms, and at most 100 years of 365 days. Required.
	Within time.Duration
}

// maxWithin is the most that Within can be. The time of an overdue receipt must stay within what
// the columns and the commands can show.
const maxWithin = 100 * 365 * 24 * time.Hour

// validateExpectations returns all mistakes.
func validateExpectations(expected []Expectation) error {
	var problems []error
	seen := map[string]bool{}
	for _, e := range expected {
		if err := e.validate(); err != nil {
			problems = append(problems, fmt.Errorf("Receipts: topic %.60q: %w", e.Topic, err))
		}
		for _, consumer := range e.Consumers {
			if pair := e.Topic + "\x00" + consumer; seen[pair] {
				problems = append(problems, fmt.Errorf("Receipts: topic %.60q: the consumer %.60q is there twice: name it once", e.Topic, consumer))
			} else {
				seen[pair] = true
			}
		}
	}
	return errors.Join(problems...)
}

func (e Expectation) validate() error {
	var problems []error
	if err := spool.CheckTopic(e.Topic); err != nil {
		problems = append(problems, err)
	}
	if len(e.Consumers) == 0 {
		problems = append(problems, errors.New("Consumers: is empty: name at least one"))
	}
	for _, consumer := range e.Consumers {
		if err := receipt.CheckConsumer(consumer); err != nil {
			problems = append(problems, fmt.Errorf("Consumers: %w", err))
		}
	}
	if e.Within < time.Millisecond {
		problems = append(problems, fmt.Errorf("Within: %s is less than 1ms", e.Within))
	}
	if e.Within > maxWithin {
		problems = append(problems, fmt.Errorf("Within: %s is more than 100 years: use the time after which you want to hear that a receipt is missing", e.Within))
	}
	return errors.Join(problems...)
}

// expect stores the receipts that are expected for messages of a topic, if the configuration names
// any.
func (p *Publisher) expect(ctx context.Context, db postbox.Executor, topic string, drafts []spool.Draft, skipped []int) error {
	if len(p.config.Receipts) == 0 {
		return nil
	}
	if err := p.await(ctx, db, drafts, skipped); err != nil {
		return fmt.Errorf("publish to topic %.300q: %w", topic, dialect.HintAtPooler(err))
	}
	return nil
}

// await stores the receipts that are expected for the drafts, in the transaction that stores these.
// It leaves out the drafts at the positions that were skipped.
func (p *Publisher) await(ctx context.Context, db postbox.Executor, drafts []spool.Draft, skipped []int) error {
	rows := awaited(p.config.Receipts, drafts, skipped)
	for _, query := range p.spool.Statements.AwaitReceipts(rows) {
		if err := p.run(ctx, db, query); err != nil {
			return spool.Wrap("write the expected receipts", err)
		}
	}
	return nil
}

// awaited returns the rows in the order of their keys, so that two transactions with the same
// messages cannot block each other.
func awaited(expected []Expectation, drafts []spool.Draft, skipped []int) (rows []dialect.ReceiptRow) {
	for i, draft := range drafts {
		if draft.Metadata[receipt.Metadata] != "" || slices.Contains(skipped, i) {
			continue
		}
		for _, e := range expected {
			if e.Topic != draft.Topic {
				continue
			}
			for _, consumer := range e.Consumers {
				row := dialect.ReceiptRow{
					Key: receipt.Key(draft.MessageID, draft.Topic, consumer), Topic: draft.Topic, MessageID: []byte(draft.MessageID), Consumer: consumer,
					Delay: draft.Delay.Microseconds(), Within: e.Within.Microseconds(),
				}
				if !draft.Due.IsZero() {
					row.Due = draft.Due.UnixMicro()
				}
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b dialect.ReceiptRow) int { return bytes.Compare(a.Key, b.Key) })
	return rows
}
