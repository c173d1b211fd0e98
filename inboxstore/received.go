package inboxstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// defaultHistoryPayload is the default of Received.MaxPayload.
const defaultHistoryPayload = 1 << 20

// Received is a message that a store keeps in the history of its consumer when it has been handled.
type Received struct {
	// Message is the message as it was delivered. The function that handles it works on a copy: it
	// must change neither the bytes of its payload nor its metadata.
	Message *message.Message
	// History is how long the message is kept; more than 0. The store keeps one such time for each
	// consumer, the latest that was given. Another one that an operator has stored takes
	// precedence.
	History time.Duration
	// MaxPayload is the largest size in bytes of payload and metadata together that is kept. Of a
	// larger message the history has the metadata without the payload, and without the metadata if
	// these alone are larger, and the number of bytes that it has not kept. Defaults to 1 MiB.
	MaxPayload int
}

// validate returns all mistakes.
func (r Received) validate() error {
	var problems []error
	if r.Message == nil {
		problems = append(problems, errors.New("Received.Message: is nil"))
	}
	if r.History <= 0 {
		problems = append(problems, fmt.Errorf("Received.History: %s is not above 0: use Once to keep nothing", r.History))
	}
	if r.MaxPayload < 0 {
		problems = append(problems, fmt.Errorf("Received.MaxPayload: %d bytes is negative", r.MaxPayload))
	}
	return errors.Join(problems...)
}

// OnceReceived is [Store.Once] for a message that is kept in the history of the key's consumer when
// fn has handled it. The entry of the history commits with the claim and with the writes of fn. So
// a duplicate adds none, and neither does an error of fn. Within a call for the same key, the outer
// call alone decides whether the message is kept.
//
// It costs one statement more, after fn. The first call for a consumer also registers its history,
// outside of the transaction unless ctx carries one, and every half a minute statements read
// whether an operator has turned it off: one in the transaction, if the last time was longer ago,
// and others in the background.
func (s *Store) OnceReceived(ctx context.Context, key Key, received Received, fn func(ctx context.Context) error) (fresh bool, err error) {
	if err := received.validate(); err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	received.MaxPayload = cmp.Or(received.MaxPayload, defaultHistoryPayload)
	return s.measured(ctx, key, &keeping{
		history: s.histories.of(key.Consumer, received.History), key: key, began: time.Now(), most: received.MaxPayload,
		payload: received.Message.Payload, metadata: received.Message.Metadata, carried: received.Message.UUID, source: sourceIn(ctx),
	}, fn)
}

// keeping is a message that is to be kept. A nil one is not kept.
type keeping struct {
	history  *history
	key      Key
	began    time.Time
	most     int
	payload  []byte
	metadata message.Metadata
	carried  string // the UUID
	source   string // the topic that the handler subscribed to
}

const (
	// keepTries is how often a message is given another time at which it was received, if another
	// one was received in the same microsecond.
	keepTries = 20
	// keepStep is the largest correction of that time, in microseconds.
	keepStep = 1000
)

// errNoClaim is returned if the claim, which the transaction has made, is not there.
var errNoClaim = fmt.Errorf("%w: its claim of the message is gone", ErrTransactionLost)

// ready finds the history in the database, if it is not known yet. It takes a connection.
func (k *keeping) ready(ctx context.Context) error {
	if k == nil {
		return nil
	}
	return k.history.ready(ctx)
}

// readySoon does the same in the background, for a caller whose transaction may hold the only
// connection.
func (k *keeping) readySoon() {
	if k != nil {
		k.history.refresh()
	}
}

// in puts the message into the history, as the last statement of the transaction that has claimed
// it.
func (k *keeping) in(ctx context.Context, tx *sql.Tx, claim []byte) error {
	id, err := k.history.id(ctx, tx)
	if err != nil || id == 0 {
		return err
	}
	row, err := k.row(id, claim)
	if err != nil {
		return fmt.Errorf("keep received message: %w", err)
	}
	s := k.history.of
	for range keepTries {
		kept, err := spool.Affected(s.core.InTx()(ctx, tx, s.core.Statements.KeepReceived(row)))
		if err != nil {
			return fmt.Errorf("keep received message: %w", err)
		}
		if kept > 0 {
			return nil
		}
		row.Since += 1 + rand.Int64N(keepStep) //nolint:gosec // only has to differ
	}
	return errNoClaim
}

// row returns the stored form. Like a dead letter, it has only as much of a name as its columns can
// hold.
func (k *keeping) row(spoolID int64, claim []byte) (dialect.Received, error) {
	metadata, err := spool.EncodeMetadata(k.metadata)
	if err != nil {
		return dialect.Received{}, err
	}
	now := time.Now()
	row := dialect.Received{
		Clock: now.UnixMicro(), Since: now.Sub(k.began).Microseconds(), Claim: claim, Spool: spoolID, Topic: spool.NameText(k.key.Topic), MessageID: spool.Fitting([]byte(k.key.MessageID)),
		Source: k.source, CarriedID: spool.Fitting([]byte(k.carried)), Payload: k.payload, Metadata: metadata, Process: k.history.of.process,
	}
	if key := k.metadata.Get(postbox.MetadataOrderingKey); key != "" {
		row.Key = spool.Fitting([]byte(key))
	}
	if len(row.Payload)+len(row.Metadata) > k.most {
		row.Omitted, row.Payload = len(row.Payload), []byte{}
	}
	if len(row.Metadata) > k.most {
		row.Omitted += len(row.Metadata)
		row.Metadata, err = spool.EncodeMetadata(nil)
	}
	return row, err
}
