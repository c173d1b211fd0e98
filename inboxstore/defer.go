package inboxstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Defer stores a message in a queue, once, for a [Subscriber] to handle later: the claim of the key and the message
// are committed together, or in the transaction that ctx carries. It returns false for a message that was stored
// before. When it returns without an error, the broker is owed nothing more.
func (s *Store) Defer(ctx context.Context, queue string, key Key, msg *message.Message) (fresh bool, err error) {
	stored := s.queue(queue)
	return s.Once(ctx, key, func(ctx context.Context) error {
		tx, _ := postbox.TxFromContext(ctx) // Once has put it there
		postbox.AfterCommit(ctx, stored.Ring)
		return stored.Append(ctx, tx, s.appendInTx, []spool.Draft{{
			Topic: queue, MessageID: key.MessageID, Key: msg.Metadata.Get(postbox.OrderingKey),
			Payload: msg.Payload, Metadata: msg.Metadata,
		}})
	})
}

func (s *Store) appendInTx(ctx context.Context, db spool.Executor, query dialect.Query) error {
	tx, ok := db.(*sql.Tx)
	if !ok {
		return fmt.Errorf("store message: %w", postbox.ErrNoTransaction)
	}
	_, err := s.exec(ctx, tx, query.Text, query.Args...)
	return err
}

// queuePrefix keeps the queues of inboxes apart from outboxes, which are spools of the same tables.
const queuePrefix = "inbox "

// queue returns the spool of a queue, which is opened once.
func (s *Store) queue(name string) *spool.Spool {
	s.queuesMu.Lock()
	defer s.queuesMu.Unlock()
	if s.queues[name] == nil {
		s.queues[name] = spool.New(s.statements, queuePrefix+name, s.config.Lanes)
	}
	return s.queues[name]
}
