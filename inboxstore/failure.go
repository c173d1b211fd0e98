package inboxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// recordTimeout bounds the write of a failure or a dead letter. The write does not depend on the
// delivery's context.
const recordTimeout = 30 * time.Second

// RecordFailure records that the handler failed, and returns the number of failures so far, in all
// processes. It runs in a transaction of its own, after the handler's was rolled back. Copies of a
// message that fail at the same time are counted one after the other. In a transaction that the
// store did not begin, RecordFailure writes to that transaction, since a pool may have no second
// connection. If that transaction is rolled back, the failure is not counted.
func (s *Store) RecordFailure(ctx context.Context, key Key, cause error) (attempts int, err error) {
	if err := key.validate(); err != nil {
		return 0, fmt.Errorf("inbox: record failure: %w", err)
	}
	claim := key.bytes()
	lock := lockOf(claim)
	_, joined := postbox.TxFromContext(ctx)
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if !joined { // copies may fail at the same time, and each counts; in a user's transaction the lock might be held for long
			if _, err := tx.ExecContext(ctx, s.core.Statements.LockClaim, lock); err != nil {
				return err
			}
		}
		attempts = 0 // also when a conflict runs this again
		err := tx.QueryRowContext(ctx, s.core.Statements.LastAttempt, claim).Scan(&attempts)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		attempts++
		err = spool.Run(ctx, tx, s.core.Statements.InsertFailure(dialect.Failure{
			Subject: claim, Attempt: attempts, Error: spool.ErrorText(cause), Process: s.process,
		}))
		if err != nil {
			return err
		}
		if !joined {
			_, err = tx.ExecContext(ctx, s.core.Statements.RemoveClaim, lock)
		}
		return err
	})
	if err != nil {
		return 0, s.refused(fmt.Errorf("inbox: record failure: %w", err))
	}
	return attempts, nil
}

// Bury moves a message to the dead letters and claims it, so that it is not tried again until an
// operator decides so. The letter says by what key the consumer knows the message, and for a
// requeue its UUID and the topic that ctx has from Watermill's router. Bury logs that, and does
// nothing if the message has been claimed meanwhile.
// The letter keeps only as much as its columns can hold, because otherwise the message would be
// nacked for ever. This concerns a consumer or topic that is no text or has more than 255 bytes,
// and an id or ordering key of more than 65,535 bytes.
func (s *Store) Bury(ctx context.Context, key Key, msg *message.Message, attempts int, cause error) error {
	if err := checkMessage(key, msg); err != nil {
		return fmt.Errorf("inbox: bury message: %w", err)
	}
	metadata, err := spool.EncodeMetadata(msg.Metadata)
	if err != nil {
		return fmt.Errorf("inbox: bury message: %w", err)
	}
	claim := key.bytes()
	var orderingKey []byte
	var hash *int64
	if text := msg.Metadata.Get(postbox.MetadataOrderingKey); text != "" {
		h := keyhash.Of(text)
		orderingKey, hash = []byte(text), &h
	}
	buried := false
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		claimed, err := s.exec(ctx, tx, s.core.Statements.Claim, claim)
		buried = claimed > 0
		if err != nil || !buried {
			return err
		}
		return spool.Buried(spool.Directly(ctx, tx, s.core.Statements.InsertDeadLetter(dialect.InboxLetter{
			Letter: dialect.Letter{
				Subject: claim, Topic: spool.NameText(key.Topic), MessageID: spool.Fitting([]byte(key.MessageID)),
				Payload: msg.Payload, Metadata: metadata, Error: spool.ErrorText(cause), Cause: causeOf(cause),
			},
			Consumer: spool.NameText(key.Consumer), Source: sourceIn(ctx), CarriedID: spool.Fitting([]byte(msg.UUID)), Key: spool.Fitting(orderingKey), KeyHash: hash, Attempts: attempts,
		})))
	})
	if err != nil {
		return s.refused(fmt.Errorf("inbox: bury message: %w", err))
	}
	if buried {
		s.logger.Error("Postbox moved a message to the dead letters", cause, watermill.LogFields{
			"consumer": key.Consumer, "topic": key.Topic, "message_uuid": key.MessageID, "attempts": attempts,
		})
	}
	return nil
}

// sourceIn returns the topic on which a message came that Watermill's router delivers, or "" if
// that is not known, or is none on which a message can be published again.
func sourceIn(ctx context.Context) string {
	topic := message.SubscribeTopicFromCtx(ctx)
	if spool.CheckTopic(topic) != nil {
		return ""
	}
	return topic
}

// causeOf returns why an inbox gives up a message with this error.
func causeOf(err error) dialect.Cause {
	if verdict.IsPermanent(err) {
		return dialect.CausePermanent
	}
	return dialect.CauseAttempts
}

// write runs fn in the context's transaction, or in a transaction of its own that outlives the
// context.
func (s *Store) write(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	scope := txscope.From(ctx)
	if err := scope.Begin(); err != nil {
		return err
	}
	defer scope.End()
	tx, joins, err := s.carried(ctx)
	if err != nil {
		return err
	}
	if joins {
		return fn(ctx, tx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return spool.InTx(ctx, s.core.DB, s.core.Statements, func(tx *sql.Tx) error { return fn(ctx, tx) })
}
