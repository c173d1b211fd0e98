package receipts

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// openPause is the time between two tries to reach a database that is away.
const openPause = time.Second

// open waits until the database can be used, or ctx ends. It returns an error that remains however
// long it waits: the tables are missing, or the database is unfit. It leaves an error that the
// server gives for another reason, such as a missing right, to the cleaner, whose tasks need
// different rights.
func (r *Receiver) open(ctx context.Context) error {
	for waits := false; ; waits = true {
		err := r.check(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // Run ends as it was told to
		case dialect.LacksTable(err), errors.Is(err, dialect.ErrUnfit):
			return spool.Wrap("receiver of receipts", dialect.HideAddress(err))
		case err == nil && waits:
			r.logger.Info("Postbox's receiver of receipts has reached its database", nil)
			return nil
		case err == nil, dialect.Coded(err) && r.statements.Kind.Classify(err) == dialect.Other:
			return nil
		case !waits:
			r.logger.Error("Postbox's receiver of receipts cannot reach its database and goes on trying", dialect.HintAtPooler(dialect.HideAddress(err)), nil)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(openPause):
		}
	}
}

// check returns the error with which the receiver cannot work now.
func (r *Receiver) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	if err := r.statements.CheckServer(ctx, r.db); err != nil {
		return err
	}
	_, err := receipt.Page(ctx, r.db, r.statements, dialect.ReceiptPage{State: dialect.ReceiptAwaited, Limit: 1})
	return err
}

// stopped logs the error with which Run ends, which is easily overlooked: Run mostly has a
// goroutine of its own.
func (r *Receiver) stopped(err error) error {
	r.logger.Error("Postbox's receiver of receipts has stopped, and tells of no missing receipt: fix the cause of the error, and start it again", err, watermill.LogFields{})
	return err
}
