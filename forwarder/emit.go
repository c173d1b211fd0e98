package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// emitter is what a publisher remembers that writes into the log.
type emitter struct {
	seen      atomic.Bool // it has seen the slot, and no error since
	uncounted atomic.Bool // the library of a transaction does not count rows, so each message looks for the slot
}

var errUncounted = errors.New("the library of the transaction does not say how many rows the statement has returned, so whether it has written the message is not known: roll the transaction back, and publish again")

// lackError says what the log lacks to keep a message, or for a process that reads it later. Its text leaves out that of the server, which says that a setting is unknown: the statement reads one that does not exist to fail.
type lackError struct {
	lack   string
	server error
}

func (e *lackError) Error() string { return e.lack }

// Unwrap returns the error of the server.
func (e *lackError) Unwrap() error { return e.server }

const setUpAgain = "run pgtail.SetupOutbox, or \"postbox log setup --without-rows\", which says if messages are lost: docs/log-tailing.md says more"

var logLacks = map[dialect.LogLack]string{
	dialect.LacksSlot:        "the log is not set up to keep messages, or its slot is lost: run pgtail.SetupOutbox, or \"postbox log setup --without-rows\"; if it was set up before, run \"postbox log accept-loss\", or call pgtail.AcceptLoss: docs/log-tailing.md says more",
	dialect.LacksPublication: "the publication of the log was dropped or renamed, or search_path leads to other tables, and without it no process could read the message: " + setUpAgain,
	dialect.LacksTrust:       "the publication of the log was renamed, altered or made again, or its comment was changed, and perhaps no process can read the log: " + setUpAgain,
}

var errUniqueInLog = errors.New("a message in the log cannot have a unique key, since it has no row: use a publisher without Log")

// emit writes messages into the log.
func (p *Publisher) emit(ctx context.Context, db postbox.Executor, topic string, drafts []spool.Draft) error {
	if tx, standard := db.(*sql.Tx); standard {
		if err := p.place.Check(ctx, tx); err != nil {
			return fmt.Errorf("publish to topic %.300q: %w", topic, err)
		}
	}
	if slices.ContainsFunc(drafts, func(d spool.Draft) bool { return d.UniqueKey != "" }) {
		return fmt.Errorf("publish to topic %.300q: %w", topic, postbox.Permanent(errUniqueInLog))
	}
	pieces, err := tail.Emitted{Outbox: p.config.Outbox, Lanes: p.config.Lanes, Drafts: drafts}.Encode()
	if err != nil {
		return fmt.Errorf("publish to topic %.300q: %w", topic, postbox.Permanent(err))
	}
	for _, piece := range pieces {
		if err := p.emitPiece(ctx, db, piece); err != nil {
			return fmt.Errorf("publish to topic %.300q: %w", topic, err)
		}
	}
	p.meter.Stored(topic, len(drafts))
	return nil
}

// emitPiece writes a piece. Now and then it looks for the slot, without which the piece would be lost: the first time, after an error, and if the session of the server has not done so
// within the second. A slot that is dropped meanwhile is a loss that the forwarders notice. Each message sees whether the publication is gone.
func (p *Publisher) emitPiece(ctx context.Context, db postbox.Executor, piece []byte) error {
	if p.emitter.seen.Load() && !p.emitter.uncounted.Load() {
		result, err := p.exec(ctx, db, p.spool.Statements.Emit(piece, false))
		if err != nil {
			return p.lacks(err)
		}
		switch written, err := returned(result); {
		case err != nil:
			p.emitter.uncounted.Store(true)
			return err
		case written > 0:
			return nil
		}
	}
	result, err := p.exec(ctx, db, p.spool.Statements.Emit(piece, true))
	if err != nil {
		return p.lacks(err)
	}
	if written, err := returned(result); err != nil || written != 1 {
		p.emitter.uncounted.Store(true)
	}
	p.emitter.seen.Store(true)
	return nil
}

// returned is the number of rows that a statement has returned. An executor of the user may return no result.
func returned(result sql.Result) (int64, error) {
	if result == nil {
		return 0, errUncounted
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUncounted, err)
	}
	return rows, nil
}

// lacks returns the error of a statement that has written nothing. After it, the next message looks for everything.
func (p *Publisher) lacks(err error) error {
	p.emitter.seen.Store(false)
	if lacks := dialect.LogLackOf(err); lacks != dialect.LacksNothing {
		return &lackError{logLacks[lacks], err}
	}
	return dialect.HintAtPooler(spool.Wrap("write into the log", err))
}
