package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// UniqueMessage returns the message that waits under a unique key of an outbox, and its latest
// failures, oldest first.
func (o *operator) UniqueMessage(ctx context.Context, name, topic, key string) (*storedMessage, []Failure, error) {
	what := fmt.Sprintf("find the message with the unique key %.60q in", key)
	s, err := o.find(ctx, name)
	if err != nil {
		return nil, nil, failedTo(what, name, err)
	}
	m, err := o.waitingUnder(ctx, s, topic, key)
	if err != nil {
		return nil, nil, failedTo(what, name, err)
	}
	m.UniqueKey = key
	failures, err := o.historyOf(ctx, name, m)
	if err != nil {
		return nil, nil, failedTo(what, name, err)
	}
	return m, failures, nil
}

// waitingUnder reads the message that was stored last under a unique key. If it is gone, the key is
// free.
func (o *operator) waitingUnder(ctx context.Context, s *spool.Spool, topic, key string) (*storedMessage, error) {
	id, createdAt, err := o.storedUnder(ctx, s, topic, key)
	if err != nil {
		return nil, err
	}
	m, err := o.read(ctx, o.db, o.statements.PendingMessage(operatorsql.Lookup{Spool: s.ID(), ID: id}))
	if err == nil && m.CreatedAt.UnixMicro() != createdAt { // a database that went back has given its id again
		err = ErrNotFound
	}
	return m, err
}

// storedUnder returns id and time of the message that was stored last under a unique key.
func (o *operator) storedUnder(ctx context.Context, s *spool.Spool, topic, key string) (id, createdAt int64, err error) {
	err = o.db.QueryRowContext(ctx, o.statements.MessageOfUniqueKey, spool.UniqueDigest(s.ID(), topic, key)).Scan(&id, &createdAt)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return id, createdAt, err
}

// orderingKeyIfUnique returns the ordering key of a pending message if it is also its unique key.
// It is, unless the producer has set two different ones.
func (o *operator) orderingKeyIfUnique(ctx context.Context, s *spool.Spool, m *storedMessage) (string, error) {
	if kind, _ := spool.Named(s.Name()); kind != spool.KindOutbox || m.Key == "" {
		return "", nil
	}
	id, createdAt, err := o.storedUnder(ctx, s, m.Topic, m.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", nil
	case err != nil || id != m.Place.ID || createdAt != m.CreatedAt.UnixMicro():
		return "", err
	default:
		return m.Key, nil
	}
}
