package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// tables of the shop, which are the first two, and of the workers. Nothing in those of the workers
// keeps an activity from being applied twice or too early: if the inbox failed, it would show.
const tables = `
	CREATE TABLE IF NOT EXISTS rewards_users (
		id  TEXT PRIMARY KEY,
		seq BIGINT NOT NULL DEFAULT 0
	);
	CREATE TABLE IF NOT EXISTS rewards_activities (
		user_id TEXT NOT NULL,
		seq     BIGINT NOT NULL,
		kind    TEXT NOT NULL,
		euros   BIGINT NOT NULL,
		PRIMARY KEY (user_id, seq)
	);
	CREATE TABLE IF NOT EXISTS rewards_accounts (
		user_id TEXT PRIMARY KEY,
		points  BIGINT NOT NULL DEFAULT 0,
		tier    BIGINT NOT NULL DEFAULT 0,
		applied BIGINT NOT NULL DEFAULT 0
	);
	CREATE TABLE IF NOT EXISTS rewards_journal (
		user_id  TEXT NOT NULL,
		position BIGINT NOT NULL,
		seq      BIGINT NOT NULL,
		worker   TEXT NOT NULL
	);`

const lookAgain = 20 * time.Millisecond

// waitUntilQuiet returns when nothing is under way any more: neither in the outbox, nor at the
// broker, nor in the queue.
func (d *demo) waitUntilQuiet(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		quiet, err := d.quiet(ctx)
		if err != nil || quiet {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until all activities are applied: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func (d *demo) quiet(ctx context.Context) (bool, error) {
	expected := d.bus.expected.Load()
	if d.bus.delivered.Load() < expected {
		return false, nil
	}
	queues, err := d.admin.Queues(ctx) // and the outbox
	if err != nil {
		return false, err
	}
	for _, queue := range queues {
		if queue.Pending > 0 {
			return false, nil
		}
	}
	return d.bus.expected.Load() == expected, nil // or an event was on its way while we looked
}

// mustBeZero is what nobody wants to find.
var mustBeZero = []struct{ what, query string }{
	{"activities were lost", `
		SELECT COUNT(*) FROM rewards_activities a
		WHERE NOT EXISTS (SELECT 1 FROM rewards_journal j WHERE j.user_id = a.user_id AND j.seq = a.seq)`},
	{"activities were applied more than once", `
		SELECT COUNT(*) FROM (SELECT 1 FROM rewards_journal GROUP BY user_id, seq HAVING COUNT(*) > 1) AS repeated`},
	{"activities were applied out of their order", `
		SELECT COUNT(*) FROM rewards_journal WHERE position <> seq`},
}

// verify says what came of all runs so far, ends with a line for programs, and returns all that is
// not as it should be.
func (d *demo) verify(ctx context.Context, out io.Writer) error {
	var problems []error
	for _, wrong := range mustBeZero {
		n, err := d.count(ctx, wrong.query)
		if err != nil {
			return err
		}
		if n > 0 {
			problems = append(problems, fmt.Errorf("%d %s", n, wrong.what))
		}
	}
	expected, err := expectedAccounts(ctx, d.pipes.DB)
	if err != nil {
		return err
	}
	found, err := accounts(ctx, d.pipes.DB)
	if err != nil {
		return err
	}
	for userID, account := range expected {
		if found[userID] != account {
			problems = append(problems, fmt.Errorf("the account of %s is %+v and should be %+v", userID, found[userID], account))
		}
	}
	letters, _, err := d.admin.DeadLetters(ctx, admin.Filter{})
	if err != nil {
		return err
	}
	if len(letters) > 0 {
		problems = append(problems, fmt.Errorf("%d or more dead letters", len(letters)))
	}
	if d.mishap.failures > 0 && d.mishap.meanwhile == 0 {
		problems = append(problems, errors.New("while one user's activity waited for another attempt, so did all other users"))
	}
	applied, err := d.count(ctx, "SELECT COUNT(*) FROM rewards_journal")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "RESULT users=%d applied=%d duplicates=%d failures=%d dead_letters=%d wrong=%d\n",
		len(found), applied, d.bus.again.Load(), d.mishap.failures, len(letters), len(problems))
	return errors.Join(problems...)
}

func (d *demo) count(ctx context.Context, query string) (n int, err error) {
	if err = d.pipes.DB.QueryRowContext(ctx, query).Scan(&n); err != nil {
		return 0, fmt.Errorf("count: %w: %s", err, query)
	}
	return n, nil
}

// expectedAccounts applies each user's activities, in the order of their commits.
func expectedAccounts(ctx context.Context, db *sql.DB) (map[string]account, error) {
	rows, err := db.QueryContext(ctx, "SELECT user_id, kind, euros FROM rewards_activities ORDER BY user_id, seq")
	if err != nil {
		return nil, fmt.Errorf("read activities: %w", err)
	}
	defer func() { _ = rows.Close() }()
	expected := map[string]account{}
	for rows.Next() {
		var done activity
		if err := rows.Scan(&done.UserID, &done.Kind, &done.Euros); err != nil {
			return nil, fmt.Errorf("read activities: %w", err)
		}
		expected[done.UserID] = expected[done.UserID].after(done)
	}
	return expected, rows.Err()
}

func accounts(ctx context.Context, db *sql.DB) (map[string]account, error) {
	rows, err := db.QueryContext(ctx, "SELECT user_id, points, tier FROM rewards_accounts")
	if err != nil {
		return nil, fmt.Errorf("read accounts: %w", err)
	}
	defer func() { _ = rows.Close() }()
	found := map[string]account{}
	for rows.Next() {
		var userID string
		var of account
		if err := rows.Scan(&userID, &of.points, &of.tier); err != nil {
			return nil, fmt.Errorf("read accounts: %w", err)
		}
		found[userID] = of
	}
	return found, rows.Err()
}
