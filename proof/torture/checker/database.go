package checker

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

const (
	// queuePrefix is how the names of spools begin that are queues of an inbox. The others are
	// outboxes.
	queuePrefix = "inbox "
	// originInbox marks the letters of messages that an inbox could not handle as they came.
	originInbox = 1
	// parkedFrom is the due time, in microseconds, of messages that wait for an operator: no clock
	// gets there.
	parkedFrom = int64(1) << 62
)

// ReadDatabase reads all tables in one snapshot: what moves meanwhile stands in one place.
func ReadDatabase(ctx context.Context, db *sql.DB) (Database, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return Database{}, fmt.Errorf("read the database after the run: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	found := &reading{ctx: ctx, tx: tx}
	for _, table := range []struct {
		query string
		scan  func(row scanner) error
	}{
		{selectIntents, found.intent},
		{selectEffects, found.effect},
		{selectLeases, found.lease},
		{selectPending, found.pending},
		{selectLetters, found.letter},
		{selectFailures, found.failure},
		{selectKept, found.kept},
		{selectClaims, found.claims},
		{selectNow, found.now},
	} {
		if err := found.rows(table.query, table.scan); err != nil {
			return Database{}, fmt.Errorf("read the database after the run: %w: %s", err, strings.TrimSpace(table.query))
		}
	}
	return found.Database, nil
}

// reading is a Database in the making.
type reading struct {
	Database
	ctx context.Context //nolint:containedctx // it lives as long as one call of ReadDatabase
	tx  *sql.Tx
}

// scanner is a row.
type scanner interface{ Scan(targets ...any) error }

func (r *reading) rows(query string, scan func(row scanner) error) error {
	rows, err := r.tx.QueryContext(r.ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (r *reading) intent(row scanner) error {
	var i Intent
	err := row.Scan(&i.ID, (*micros)(&i.At), &i.Message, &i.Key, &i.Turn, &i.Topic, &i.Plan, &i.Emitter, &i.Parent)
	r.Intents = append(r.Intents, i)
	return err
}

func (r *reading) effect(row scanner) error {
	var e Effect
	err := row.Scan(&e.ID, (*micros)(&e.At), &e.Consumer, &e.Message, &e.Key, &e.Turn, &e.Topic, &e.Process)
	r.Effects = append(r.Effects, e)
	return err
}

func (r *reading) lease(row scanner) error {
	var l Lease
	err := row.Scan(&l.ID, &l.Spool, &l.Lane, &l.Token, &l.Holder, (*micros)(&l.Until), (*micros)(&l.Before), (*micros)(&l.At))
	r.Leases = append(r.Leases, l)
	return err
}

func (r *reading) pending(row scanner) error {
	var p Pending
	var spool string
	err := row.Scan(&p.ID, &spool, &p.Topic, (*text)(&p.Message), (*text)(&p.Key), &p.Attempts, &p.State,
		(*micros)(&p.Created), (*micros)(&p.Available))
	p.Queue = queueOf(spool)
	r.Pending = append(r.Pending, p)
	return err
}

func (r *reading) letter(row scanner) error {
	var l Letter
	var origin int
	var spool string
	err := row.Scan(&l.ID, &origin, &spool, &l.Consumer, &l.Topic, (*text)(&l.Message), (*text)(&l.Key),
		&l.Attempts, &l.Error, (*text)(&l.Subject), (*micros)(&l.Created), (*micros)(&l.Died))
	if origin != originInbox {
		l.Consumer = queueOf(spool)
	}
	r.Letters = append(r.Letters, l)
	return err
}

func (r *reading) failure(row scanner) error {
	var f Failure
	err := row.Scan(&f.ID, (*text)(&f.Subject), &f.Attempt, (*micros)(&f.At), &f.Error, &f.Process)
	r.Failures = append(r.Failures, f)
	return err
}

func (r *reading) kept(row scanner) error {
	var k Kept
	var spool string
	err := row.Scan(&k.ID, &spool, (*text)(&k.Message), (*micros)(&k.Created), (*micros)(&k.Done))
	k.Queue = queueOf(spool)
	r.Kept = append(r.Kept, k)
	return err
}

func (r *reading) claims(row scanner) error {
	return row.Scan((*micros)(&r.OldestClaim), (*micros)(&r.NewestClaim))
}

func (r *reading) now(row scanner) error { return row.Scan((*micros)(&r.ReadAt)) }

// queueOf returns the queue that a spool is, "" for an outbox.
func queueOf(spool string) string {
	if name, found := strings.CutPrefix(spool, queuePrefix); found {
		return name
	}
	return ""
}

// micros scans a time. 0 is none, and so is the time of what waits for an operator.
type micros time.Time

// Scan implements [sql.Scanner].
func (m *micros) Scan(value any) error {
	n, ok := value.(int64)
	if !ok {
		return fmt.Errorf("%v is no time in microseconds", value)
	}
	*m = micros{}
	if n != 0 && n < parkedFrom {
		*m = micros(time.UnixMicro(n).UTC())
	}
	return nil
}

// text scans bytes that are text, or stand for a name.
type text string

// Scan implements [sql.Scanner].
func (t *text) Scan(value any) error {
	bytes, ok := value.([]byte)
	if !ok {
		return fmt.Errorf("%v is no bytes", value)
	}
	*t = text(bytes)
	return nil
}
