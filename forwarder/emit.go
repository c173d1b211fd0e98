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
// dropped meanwhile is a loss that the forwarders notice.
const slotPause = time.Second

var errNoSlot = errors.New("the log is not set up to keep messages, or its slot is lost: run pgtail.SetupOutbox, or \"postbox log setup --without-rows\"; if it was set up before, run \"postbox log accept-loss\", or call pgtail.AcceptLoss: docs/log-tailing.md says more")

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
	switch {
	case err == nil && check:
		p.emitter.checked.Store(now.UnixNano())
		return nil
	case err == nil:
		return nil
	case check && dialect.LacksSlot(err):
		return fmt.Errorf("%w: %w", errNoSlot, err)
	}
	return dialect.HintAtPooler(spool.Wrap("write into the log", err))
}
