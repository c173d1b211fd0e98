package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// emitter is what a publisher remembers that writes into the log.
type emitter struct {
	checked atomic.Int64 // when a slot was last seen, in nanoseconds since 1970
}

// slotPause is the pause between two looks for the slot. A look costs as much as the message itself. A slot that is
// dropped meanwhile is a loss that the forwarders notice. Each message sees whether the publication is gone.
const slotPause = time.Second

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
	dialect.LacksTrust:       "the publication of the log was renamed, altered or made again, and perhaps no process can read the log: " + setUpAgain,
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

// emitPiece writes a piece. Now and then it looks for the slot, without which the piece would be lost.
func (p *Publisher) emitPiece(ctx context.Context, db postbox.Executor, piece []byte) error {
	now := time.Now()
	check := now.Sub(time.Unix(0, p.emitter.checked.Load())).Abs() >= slotPause
	err := p.run(ctx, db, p.spool.Statements.Emit(piece, check))
	if err == nil {
		if check {
			p.emitter.checked.Store(now.UnixNano())
		}
		return nil
	}
	if lacks := dialect.LogLackOf(err); lacks != dialect.LacksNothing {
		p.emitter.checked.Store(0) // the next message looks for everything
		return &lackError{logLacks[lacks], err}
	}
	return dialect.HintAtPooler(spool.Wrap("write into the log", err))
}
