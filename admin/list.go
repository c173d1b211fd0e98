package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// storedMessage is a message, and where it is in the list.
type storedMessage struct {
	Message

	Place operatorsql.Place
}

// Messages lists pending messages, in the order of state, lane and id. A message only moves forward
// in this order, so a message that is pending all the time is on at least one of the pages. Those
// of a key that failed are found by an index, and others by a search, whose pages may be short.
func (o *operator) Messages(ctx context.Context, name string, filter operatorsql.MessageFilter) (foundMessages, error) {
	if filter.Key == "" || filter.States != [2]int{dialect.StateRetrying, dialect.StateRetrying} {
		return o.Search(ctx, name, filter, searchAmong)
	}
	page, err := o.list(ctx, name, "list messages of", filter, func(spool int64, filter operatorsql.MessageFilter) dialect.Query {
		return o.statements.RetryingOfKey(operatorsql.KeyRef{Spool: spool, Hash: keyhash.Of(filter.Key), Key: []byte(filter.Key)}, filter)
	})
	return paged(page, filter.Limit), err
}

// Done lists messages of the history, the latest first.
func (o *operator) Done(ctx context.Context, name string, filter operatorsql.MessageFilter) ([]*storedMessage, error) {
	return o.list(ctx, name, "list done messages of", filter, o.statements.Done)
}

// paged is a page of a list that ends when a page is not full.
func paged(messages []*storedMessage, limit int) foundMessages {
	found := foundMessages{Messages: messages}
	if n := len(messages); n > 0 && n == limit {
		found.Next = &messages[n-1].Place
	}
	return found
}

func (o *operator) list(
	ctx context.Context, name, what string, filter operatorsql.MessageFilter, query func(int64, operatorsql.MessageFilter) dialect.Query,
) ([]*storedMessage, error) {
	s, err := o.find(ctx, name)
	if err != nil {
		return nil, failedTo(what, name, err)
	}
	messages, err := o.listed(ctx, o.db, query(s.ID(), filter))
	if err != nil {
		return nil, failedTo(what, name, err)
	}
	return messages, nil
}

// listed returns the messages that a statement selects.
func (o *operator) listed(ctx context.Context, db spool.Querier, query dialect.Query) (messages []*storedMessage, err error) {
	err = spool.Each(ctx, db, query, func(scan spool.Scan) error {
		m := &storedMessage{}
		messages = append(messages, m)
		return m.scan(scan)
	})
	return messages, err
}

// Message returns one message, pending or done, with payload and metadata, and its latest failures,
// oldest first.
func (o *operator) Message(ctx context.Context, name string, id int64) (*storedMessage, []Failure, error) {
	what := fmt.Sprintf("read message %d of", id)
	s, err := o.find(ctx, name)
	if err != nil {
		return nil, nil, failedTo(what, name, err)
	}
	lookup := operatorsql.Lookup{Spool: s.ID(), ID: id}
	m, err := o.read(ctx, o.db, o.statements.PendingMessage(lookup))
	switch {
	case err == nil:
		m.UniqueKey, err = o.orderingKeyIfUnique(ctx, s, m)
	case errors.Is(err, ErrNotFound): // messages move from pending to done, and never back
		m, err = o.read(ctx, o.db, o.statements.DoneMessage(lookup, 0))
	}
	if err != nil {
		return nil, nil, failedTo(what, name, err)
	}
	if kind, _ := spool.Named(name); kind != spool.KindInbox {
		m.UUID = "" // it is the id
	}
	failures, err := o.historyOf(ctx, name, m)
	if err != nil {
		return nil, nil, failedTo(what, name, err)
	}
	return m, failures, nil
}

func (o *operator) historyOf(ctx context.Context, name string, m *storedMessage) ([]Failure, error) {
	return readFailures(ctx, o.db, o.statements, spool.MessageSubject(m.Place.ID, m.CreatedAt.UnixMicro()), requeuedSubject(targetOf(name), m.MessageID), maxHistory)
}

func (o *operator) failuresOf(ctx context.Context, m *storedMessage) ([]Failure, error) {
	return readFailures(ctx, o.db, o.statements, spool.MessageSubject(m.Place.ID, m.CreatedAt.UnixMicro()), nil, maxHistory)
}

func (o *operator) read(ctx context.Context, db rowQuerier, query dialect.Query) (*storedMessage, error) {
	m := &storedMessage{}
	var metadata, carried []byte
	err := m.scan(db.QueryRowContext(ctx, query.Text, query.Args...).Scan, (*spool.Payload)(&m.Payload), &metadata, &m.SourceTopic, &carried)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if m.Place.State == operatorsql.StateDone {
		m.UUID = string(carried)
	}
	if decoded, err := spool.DecodeMetadata(metadata); err == nil {
		m.Metadata = decoded
	}
	return m, nil
}

// scan reads the columns of a listed message, and the columns after them into more.
func (m *storedMessage) scan(scan func(...any) error, more ...any) error {
	var messageID, key []byte
	var createdAt, at, took int64
	var holder string
	targets := []any{
		&m.Place.State, &m.Place.Lane, &m.Place.ID, &m.Topic, &messageID, &key, &m.Attempts, &createdAt, &at, &m.Size, &m.Omitted, &took, &holder,
	}
	if err := scan(append(targets, more...)...); err != nil {
		return err
	}
	m.MessageID, m.Key, m.CreatedAt = string(messageID), string(key), time.UnixMicro(createdAt)
	switch m.Status = statusOf(m.Place.State, at); m.Status {
	case Parked:
	case Done:
		m.DoneAt, m.Place.Lane, m.Took = time.UnixMicro(at), at, time.Duration(took)*time.Microsecond
		m.Process, _, _ = strings.Cut(holder, " ") // behind it stands which one of the process
	default:
		m.DueAt = time.UnixMicro(at)
	}
	m.ID, m.Cursor = m.Place.ID, string(cursorOf(m.Place))
	return nil
}
