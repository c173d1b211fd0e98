package inboxstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// Defer stores a message in a queue, once, for a subscriber or a batch of package queue to handle later: the claim of the key and the message
// are committed together. It returns after the commit, and then the broker is owed nothing more. It returns false for
// a message that was stored before, by whomever. A message without a UUID is stored under the key's message id. Delays
// set with Watermill's components/delay are obeyed, by the database's clock.
//
// Deliveries that come while a commit of the same queue is under way wait for its end, and then share one: the more
// come at a time, the less each costs. One that is alone is committed at once. That is one statement on PostgreSQL,
// and a transaction of two elsewhere. From 28 that wait, a second commit begins beside the first on another connection, but
// not on SQLite; it takes no message of a key that the first has, so those of a key are stored in the order in which they came.
//
// An error concerns this message, or the database as a whole; a message that the database refuses does no harm to
// those that came with it. When ctx ends, Defer returns at once. Then, and after every other error, the message may
// have been stored nevertheless, if its commit had begun: deliver it again, and what was stored is a duplicate. That
// goes for a crash too. Messages that no other delivery could store either, too large ones, or with an id or an ordering key that is too long, or with a delay that
// cannot be read, are a [postbox.PermanentError]. After [Store.Close] it is [postbox.ErrClosed].
//
// Where ctx carries a transaction, the message is stored in a savepoint of that one, which its owner commits, and
// shares nothing; where that is one of another library (see [postbox.Executor]), the error is [postbox.ErrNoTransaction]. Defer is safe for concurrent use, as far as a transaction is.
func (s *Store) Defer(ctx context.Context, queue string, key Key, msg *message.Message) (fresh bool, err error) {
	in, err := s.ingest(queue)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message: %w", err)
	}
	s.core.Clean()
	if _, err := txscope.From(ctx).Live(); err != nil {
		return false, fmt.Errorf("inbox: defer message: %w: %w", postbox.ErrNoTransaction, err)
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
	if !joins && s.handledBefore(ctx, claim) {
		return false, nil
	}
	draft, err := s.draft(queue, key, msg)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message %.60q: %w", key.MessageID, postbox.Permanent(err))
	}
	if joins {
		return s.deferInTx(ctx, tx, in, claim, draft)
	}
	draft.Payload = bytes.Clone(draft.Payload) // its commit may go on after ctx has ended, when the caller has it back
	arrival, err := in.spool.Arrival(claim, draft)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message %.60q: %w", key.MessageID, err)
	}
	fresh, err = in.store(ctx, arrival)
	if err != nil {
		return false, fmt.Errorf("inbox: defer message %.60q: %w", key.MessageID, dialect.HintAtPooler(err))
	}
	return fresh, nil
}

// draft is the message as it is stored.
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
		Topic: queue, MessageID: cmp.Or(msg.UUID, key.MessageID), Key: msg.Metadata.Get(postbox.OrderingKey),
		Payload: msg.Payload, Metadata: msg.Metadata,
	}
	if err := spool.CheckQueue(queue); err != nil { // before the topic, which is the queue's name, too
		return spool.Draft{}, err
	}
	if err := draft.Check(); err != nil {
		return spool.Draft{}, err
	}
	return draft, draft.SetDelay(msg.Metadata)
}

// deferInTx claims and stores in a savepoint of a transaction that the store did not begin.
func (s *Store) deferInTx(ctx context.Context, tx *sql.Tx, in *ingest, claim []byte, draft spool.Draft) (fresh bool, err error) {
	in.finder.Look() //nolint:contextcheck // the search goes on after this call
	fresh, err = s.join(ctx, tx, claim, func(ctx context.Context) error {
		return in.spool.Append(ctx, tx, s.appendInTx, []spool.Draft{draft})
	})
	if fresh && !postbox.AfterCommit(ctx, in.announcer.Announce) {
		in.spool.Wake() // the commit is near: look more often
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

// ingest returns where messages for a queue come in, until the store is closed.
func (s *Store) ingest(name string) (*ingest, error) {
	s.ingestsMu.Lock()
	defer s.ingestsMu.Unlock()
	if s.closed {
		return nil, postbox.ErrClosed
	}
	if s.ingests[name] == nil {
		s.ingests[name] = newIngest(s, s.core.Spool(name))
	}
	return s.ingests[name], nil
}

// closeIngests lets what has come in be stored, and takes nothing more.
func (s *Store) closeIngests() {
	s.ingestsMu.Lock()
	s.closed = true
	s.ingestsMu.Unlock()
	for _, in := range s.ingests {
		in.close()
	}
}
