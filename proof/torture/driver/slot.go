package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/proof/torture/role"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

const (
	// slotPause is the pause between two looks at the slot.
	slotPause = 500 * time.Millisecond
	// reportDeadline is how long a loss of the slot may go unnoticed: all forwarders may be paused or cut off when it happens.
	reportDeadline = time.Minute
	// acceptDeadline is how long it may take to make a new slot, which waits for the transactions that are open.
	acceptDeadline = time.Minute
)

// slot is the driver's view of the slot by which the messages are read that are in the log alone.
type slot struct {
	mu sync.Mutex // held while the slot is lost, until an operator has accepted that
	// settled are messages that were published or have rows, whatever becomes of the slot. candidates are as soon as everything before
	// the place is read.
	settled, candidates map[string]bool
	place               int64
}

// watchSlot notes again and again what a loss of the slot could not take with it.
func (r *run) watchSlot(ctx context.Context) {
	for r.cluster != nil && wait(ctx, slotPause) {
		_ = r.settle(ctx) // where the database is away, there is a next time
	}
}

func (r *run) settle(ctx context.Context) error {
	if !r.slot.mu.TryLock() {
		return nil
	}
	defer r.slot.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	if r.slot.candidates != nil {
		read, err := ledger.LogRead(ctx, r.db)
		if err != nil || read < r.slot.place {
			return err
		}
		r.slot.settled = r.slot.candidates
	}
	var err error
	r.slot.candidates, r.slot.place, err = ledger.Logged(ctx, r.db)
	return err
}

// dropSlot drops the slot like an operator who believes that it is of no use any more.
func (r *run) dropSlot(ctx context.Context) error {
	if r.cluster == nil {
		return errors.New("no message is in the log alone")
	}
	ctx = context.WithoutCancel(ctx) // what has begun comes to its end
	r.slot.mu.Lock()
	defer r.slot.mu.Unlock()
	for end := time.Now().Add(acceptDeadline); ; {
		dropped, err := ledger.DropSlot(ctx, r.db)
		if err == nil && dropped {
			break
		}
		if !time.Now().Before(end) {
			return fmt.Errorf("the slot is not dropped: %w", err)
		}
		wait(ctx, logPause)
	}
	r.acceptLoss(ctx)
	return nil
}

// acceptLoss waits until a forwarder has said that the slot is lost, and accepts that, as an operator does. The slot is locked.
func (r *run) acceptLoss(ctx context.Context) {
	lost := checker.SlotLoss{Settled: r.slot.settled}
	r.slot.candidates = nil // the place is one of the slot that is gone
	marks := filepath.Join(r.direct.Marks, role.SlotLost+"*")
	for end := time.Now().Add(reportDeadline); ; {
		said, _ := filepath.Glob(marks) // the pattern is well formed
		for _, mark := range said {
			_ = os.Remove(mark)
		}
		if len(said) > 0 {
			break
		}
		if !time.Now().Before(end) {
			r.violate(fmt.Errorf("G1: the slot was lost, and no forwarder has said so within %s", reportDeadline))
			break
		}
		wait(ctx, logPause)
	}
	database := postbox.Database{DB: r.db, Dialect: postbox.PostgreSQL}
	for end := time.Now().Add(acceptDeadline); ; {
		within, cancel := context.WithTimeout(ctx, acceptDeadline)
		_, err := pgtail.AcceptLoss(within, database, pgtail.OutboxConfig{DSN: r.database})
		cancel()
		if err == nil || errors.Is(err, pgtail.ErrNothingLost) { // a call that was cut off may have done it
			break
		}
		if !time.Now().Before(end) {
			r.fail(fmt.Errorf("accept the loss of the slot: %w", err))
			break
		}
		wait(ctx, logPause)
	}
	lost.Accepted = time.Now()
	r.mu.Lock()
	r.slotLosses = append(r.slotLosses, lost)
	r.mu.Unlock()
	r.say("          the loss of the slot is accepted")
}
