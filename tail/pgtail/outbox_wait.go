package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

const (
	// waitPatience is the pause before an operator hears for what a call waits, and between two looks for that.
	waitPatience = 3 * time.Second
	// lockPause is the pause between two series of tries to lock the publication. Publishers wait behind each try.
	lockPause = time.Second
)

// waiting calls do, which waits for transactions of others. If that takes long, the operator hears what for, and which transaction keeps it waiting, as the query finds it.
func (a *administration) waiting(ctx context.Context, what string, keeps dialect.Query, do func() error) error {
	if a.config.Waits == nil {
		return do()
	}
	within, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.tellWait(within, what, keeps)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	return do()
}

// tellWait says for what a call waits, and again when that has changed, until ctx ends.
func (a *administration) tellWait(ctx context.Context, what string, keeps dialect.Query) {
	ticker := time.NewTicker(waitPatience)
	defer ticker.Stop()
	for told := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := what
		if keeper, err := a.keepsWaiting(ctx, keeps); err == nil {
			now += keeper
		}
		if ctx.Err() == nil && now != told {
			told = now
			a.config.Waits(now)
		}
	}
}

// keepsWaiting names the transaction that a query finds, or nothing.
func (a *administration) keepsWaiting(ctx context.Context, query dialect.Query) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var pid int
	var prepared, role, application string
	err := a.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&pid, &prepared, &role, &application)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for what keeps waiting: %w", err)
	case pid == 0:
		return fmt.Sprintf(", and the prepared transaction %q is open, which COMMIT PREPARED or ROLLBACK PREPARED ends", prepared), nil
	}
	return fmt.Sprintf(", and that of process %d of the server is open (role %s, application_name %q)", pid, role, application), nil
}

// alone returns when no other process sets up the log, and looks again. The server keeps others away until the session ends.
func (a *administration) alone(ctx context.Context) error {
	const what = "Postbox waits for another process that sets up the log"
	err := a.waiting(ctx, what, a.statements.SetUpHolder(a.session.table), func() error {
		_, err := a.session.query(ctx, a.statements.LockSetUp(a.session.table))
		return err
	})
	if err != nil {
		return explain(fmt.Errorf("wait for another process that sets up the log: %w", err))
	}
	server := a.server // as it was before the session took a sender
	err = a.look(ctx, a.db)
	a.server = server
	return err
}

// waitsForAll says for what [administration.settle] waits.
const waitsForAll = "Postbox waits for the end of all open transactions of the server, which may come into its log"

// settle returns when all of the log can be read that was written up to now. A transaction that is open comes into it when it commits. One with synchronous_commit = off can be read a little later than
// others see it, when it is on the disk.
func (a *administration) settle(ctx context.Context) error {
	err := a.waiting(ctx, waitsForAll, a.statements.OldestTransaction(), func() error { return a.transactionsEnd(ctx) })
	if err != nil {
		return err
	}
	for _, text := range dialect.FlushLog() {
		if _, err := a.session.query(ctx, text); err != nil {
			return explain(fmt.Errorf("write the log to the disk: %w", err))
		}
	}
	return nil
}

// transactionsEnd waits until all transactions have ended that are open now.
func (a *administration) transactionsEnd(ctx context.Context) error {
	ticker := time.NewTicker(retryMin)
	defer ticker.Stop()
	var until, oldest int64
	if err := a.db.QueryRowContext(ctx, a.statements.NewTransaction).Scan(&until); err != nil {
		return fmt.Errorf("wait for open transactions: %w", err)
	}
	for {
		if err := a.db.QueryRowContext(ctx, a.statements.OpenTransactions).Scan(&oldest); err != nil {
			return fmt.Errorf("wait for open transactions: %w", err)
		}
		if oldest >= until {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// untilUnlocked calls do, which tries for a moment to lock the publication, until it has the lock.
func (a *administration) untilUnlocked(ctx context.Context, do func() error) error {
	ticker := time.NewTicker(lockPause)
	defer ticker.Stop()
	for {
		err := do()
		if a.statements.Kind.Classify(err) != dialect.Conflict {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}
