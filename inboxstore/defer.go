package inboxstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// Defer stores a message in a queue, once, for a subscriber or a batch of package queue to handle
// later. The claim of the key and the message commit together, and Defer returns after the commit.
// Then the message can be acked to the broker. Defer returns false for a message that was stored
// before, by any process. A message without a UUID is stored under the key's message id. Delays set
// with Watermill's components/delay are applied, by the database's clock.
//
// Defer uses group commit. Deliveries that arrive while a commit of the same queue is running share
// the next one: the more arrive at a time, the less each costs. A lone delivery is committed at
// once. While 28 or more are waiting, a second commit runs beside the first, except on SQLite. It
// takes no message whose key is in the first, so those of a key are stored as they arrived.
//
// An error concerns this message, or the database as a whole. When ctx ends, Defer returns
// immediately. Then, and after every other error, the message may still have been stored: deliver
// it again, as after a crash. What no later delivery could store either is a [postbox.Permanent]
// error: a message that is nil or too large, a key without a message id, an id or ordering key that
// is too long, or a delay that cannot be read. After [Store.Close] it is [postbox.ErrClosed].
//
// If ctx carries a transaction, the message is stored in a savepoint of that transaction, which its
// owner commits. Such a message takes no part in a group commit. If the transaction belongs to
// another library (see [postbox.Executor]), the error is [postbox.ErrNoTransaction]. Defer is safe
// for concurrent use, as far as a transaction is.
func (s *Store) Defer(ctx context.Context, queue string, key Key, msg *message.Message) (fresh bool, err error) {
	if err := checkMessage(key, msg); err != nil {
		return false, fmt.Errorf("inbox: defer message: %w", err)
	}
	in, err := s.ingest(queue)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message: %w", err)
	}
	defer func() { in.measure(key, fresh, err) }()
	defer func() { err = s.refused(err) }()
	s.core.Clean()
	if _, err := txscope.From(ctx).Live(); err != nil {
		return false, fmt.Errorf("inbox: defer message: %w", err)
	}
	claim := key.bytes()
	tx, joins, err := s.carried(ctx)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message: %w", err)
	}
	if !joins {
		if err := s.checkFit(ctx); err != nil {
			return false, err
		}
	}
	draft, err := s.draft(queue, key, msg)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message %.60q: %w", key.MessageID, postbox.Permanent(err))
	}
	if joins {
		return s.deferInTx(ctx, tx, in, claim, draft)
	}
	draft.Payload = bytes.Clone(draft.Payload) // the commit may continue after ctx has ended, when the caller may reuse its payload
	arrival, err := spool.NewArrival(claim, draft)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message %.60q: %w", key.MessageID, err)
	}
	fresh, err = in.store(ctx, arrival)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message %.60q: %w", key.MessageID, dialect.HintAtPooler(err))
	}
	return fresh, nil
}

// checkMessage returns an error if a message cannot be stored under its key.
func checkMessage(key Key, msg *message.Message) error {
	if msg == nil {
		return postbox.Permanent(errors.New("the message is nil"))
	}
	return key.validate()
}

// draft returns the message in its stored form.
func (s *Store) draft(queue string, key Key, msg *message.Message) (spool.Draft, error) {
	size := len(msg.Payload)
	for key, value := range msg.Metadata {
		size += len(key) + len(value)
	}
	if size > s.config.MaxPayload {
		return spool.Draft{}, fmt.Errorf(
			"payload and metadata have %d bytes and Config.MaxPayload is %d: raise it, or let the producer store large content elsewhere and send its address",
			size, s.config.MaxPayload)
	}
	draft := spool.Draft{
		Topic: queue, MessageID: cmp.Or(msg.UUID, key.MessageID), Key: msg.Metadata.Get(postbox.MetadataOrderingKey),
		Payload: msg.Payload, Metadata: msg.Metadata,
	}
	if err := spool.CheckQueue(queue); err != nil { // checked before the topic, because the topic is the queue's name too
		return spool.Draft{}, err
	}
	if err := draft.Check(); err != nil {
		return spool.Draft{}, err
	}
	return draft, draft.SetDelay(msg.Metadata)
}

// deferInTx claims the key and stores the message in a savepoint of a transaction that the store
// did not begin.
func (s *Store) deferInTx(ctx context.Context, tx *sql.Tx, in *ingest, claim []byte, draft spool.Draft) (fresh bool, err error) {
	in.finder.Look() //nolint:contextcheck // the search continues after this call
	fresh, err = s.join(ctx, tx, claim, nil, func(ctx context.Context) error {
		return in.spool.Append(ctx, tx, s.appendInTx, []spool.Draft{draft})
	})
	if fresh && !postbox.AfterCommit(ctx, in.announcer.Announce) {
		in.spool.Wake() // the transaction will commit soon: poll more often
	}
	return fresh, dialect.HintAtPooler(err)
}

func (s *Store) appendInTx(ctx context.Context, db spool.Executor, query dialect.Query) error {
	tx, ok := db.(*sql.Tx)
	if !ok {
		return fmt.Errorf("store message: %w", postbox.ErrNoTransaction)
	}
	_, err := s.exec(ctx, tx, query.Text, query.Args...)
	return err
}

// ingest returns the ingest of a queue, until the store is closed.
func (s *Store) ingest(name string) (*ingest, error) {
	s.ingestsMu.Lock()
	defer s.ingestsMu.Unlock()
	if s.closed {
		return nil, postbox.ErrClosed
	}
	if s.ingests[name] == nil {
		s.ingests[name] = newIngest(s, name)
	}
	return s.ingests[name], nil
}

// closeIngests waits until all queued messages are stored, and accepts no more.
func (s *Store) closeIngests() {
	s.ingestsMu.Lock()
	s.closed = true
	s.ingestsMu.Unlock()
	for _, in := range s.ingests {
		in.close()
	}
}
