package pgtail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

const (
	// confirmInterval is the pause between two confirmations of a position to the server.
	confirmInterval = time.Second
	// passedMost is how many bytes of log without messages may pass before the position is stored. The server keeps its
	// log in files of this size.
	passedMost = 16 << 20
	// invisibleMin and invisibleMax bound the pause between two looks for a transaction that is in the log and not yet
	// visible. If a synchronous standby is away, that takes long.
	invisibleMin = 500 * time.Microsecond
	invisibleMax = 50 * time.Millisecond
	// lastPatience bounds how long the position is stored after messages were published, although the session ends.
	lastPatience = 10 * time.Second
)

// errFenced ends a session whose log another process has claimed, or whose database leads to another server.
var errFenced = errors.New("another process has claimed the log, or the database has moved to another server")

// errInvisible means that a transaction is in the log and not visible yet.
var errInvisible = errors.New("a transaction is not visible yet")

// keeper publishes or stores what the intake has.
type keeper struct {
	outbox   tail.Outbox
	group    *group
	intake   *intake
	position dialect.LogPosition // as it is stored
	saved    int64               // the position that was confirmed last, or is to be confirmed when the log is on the disks up to savedBy
	savedBy  uint64              // 0 if it was confirmed
	since    uint64              // messages that were committed before this position get rows, see reserve
	begun    bool                // messages were perhaps published whose position is not stored
	spools   map[string]*target
	prepared *spool.Prepared
	succeeds func() // is called when something was stored
}

// storeError ends a session that can read the log, and store nothing of it.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *storeError) Unwrap() error { return e.err }

// refused reports whether the database has refused to store. It may do so for long, unlike one that is away.
func (e *storeError) refused() bool {
	const kind = dialect.PostgreSQL
	return dialect.Coded(e.err) && (kind.Classify(e.err) != dialect.Unavailable || kind.Exhausted(e.err))
}

// target is an outbox that messages are stored in. Its spool knows nothing of the database, so each transaction reads once which lanes it has, which an operator may
// have changed, or registers it.
type target struct {
	spool     *spool.Spool
	announcer *spool.Announcer
}

// run publishes and stores until ctx ends or the database refuses.
func (k *keeper) run(ctx context.Context) error {
	defer func() {
		k.release(ctx)
		for _, t := range k.spools {
			t.announcer.Close()
		}
		k.prepared.Close()
	}()
	ticker := time.NewTicker(confirmInterval)
	defer ticker.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-k.intake.ended:
			return k.storeAll(ctx)
		case <-k.intake.changed:
			err = k.storeNext(ctx)
		case <-ticker.C:
			err = k.confirm(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// storeAll stores everything that the intake has.
func (k *keeper) storeAll(ctx context.Context) error {
	for k.intake.waiting() > 0 && ctx.Err() == nil {
		if err := k.storeNext(ctx); err != nil {
			return err
		}
	}
	return nil
}

// storeNext publishes what it can of the next portions, and stores the rest together with the position after them.
func (k *keeper) storeNext(ctx context.Context) error {
	portions, passed := k.intake.take()
	if len(portions) == 0 {
		return nil
	}
	next := k.position
	for _, p := range portions {
		next = after(next, p)
	}
	if next.Part == 0 {
		next.Position = max(next.Position, int64(passed)) //nolint:gosec // a position
	}
	last := portions[len(portions)-1].final
	published, err := k.publish(ctx, portions)
	if err != nil {
		return fmt.Errorf("publish messages of the log: %w", err)
	}
	if published { // a session that ends now must not publish them again
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPatience)
		defer cancel()
		ctx = last
	}
	next.Reserved = k.reservation(max(next.Position, int64(last))) //nolint:gosec // a position
	if err := untilVisible(ctx, func() error { return k.store(ctx, portions, next) }); err != nil {
		return fmt.Errorf("store messages of the log: %w", err)
	}
	k.position, k.begun = next, false
	k.succeeds()
	k.announce(portions)
	return nil
}

// untilVisible calls try until its error is another one than errInvisible, or ctx ends.
func untilVisible(ctx context.Context, try func() error) error {
	for pause := invisibleMin; ; pause = min(2*pause, invisibleMax) {
		err := try()
		if !errors.Is(err, errInvisible) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// after returns the position after a portion.
func after(before dialect.LogPosition, p portion) dialect.LogPosition {
	if p.end == 0 {
		before.Part = p.part
		return before
	}
	before.Position, before.Part = int64(p.end), 0 //nolint:gosec // a position
	return before
}

// store stores messages and the position in one transaction. The row of the position is locked first, which fences out a
// process that has lost the slot. If all messages were published, which was after they were visible, there is the position alone.
func (k *keeper) store(ctx context.Context, portions []portion, next dialect.LogPosition) error {
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	if !slices.ContainsFunc(portions, portion.needsRows) {
		return k.pass(ctx, next)
	}
	return spool.InTx(ctx, k.outbox.DB, k.outbox.Statements, func(tx *sql.Tx) error {
		seen, err := k.save(ctx, tx, next)
		if err != nil {
			return err
		}
		if err := visible(seen, portions); err != nil {
			return err
		}
		return k.append(ctx, tx, portions)
	})
}

// visible returns errInvisible unless the snapshot sees all transactions with messages.
func visible(seen tail.Snapshot, portions []portion) error {
	for _, p := range portions {
		if len(p.messages) > 0 && !seen.Sees(p.transaction) {
			return errInvisible
		}
	}
	return nil
}

// save stores the position in a transaction, and returns what it sees.
func (k *keeper) save(ctx context.Context, tx *sql.Tx, position dialect.LogPosition) (seen tail.Snapshot, err error) {
	query := k.outbox.Statements.SaveLogPosition(position)
	var text string
	switch err := tx.QueryRowContext(ctx, query.Text, query.Args...).Scan(&text); {
	case errors.Is(err, sql.ErrNoRows):
		return seen, errFenced
	case err != nil:
		return seen, err
	}
	return tail.ParseSnapshot(text)
}

// pass stores the position alone. The next message need not wait until it is on the disk of the server.
func (k *keeper) pass(ctx context.Context, position dialect.LogPosition) error {
	err := k.row(ctx, k.outbox.Statements.PassLog(position), new(string))
	if errors.Is(err, sql.ErrNoRows) {
		return errFenced
	}
	return err
}

// row runs a prepared query outside a transaction. The error is [sql.ErrNoRows] if it returns no row.
func (k *keeper) row(ctx context.Context, query dialect.Query, into ...any) error {
	rows, err := k.prepared.Query(ctx, k.outbox.DB, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(into...); err != nil {
		return err
	}
	return rows.Close()
}

// append stores the messages of each outbox in the order of the log.
func (k *keeper) append(ctx context.Context, tx *sql.Tx, portions []portion) error {
	drafts, lanes := map[string][]spool.Draft{}, map[string]int{}
	var outboxes []string
	for _, p := range portions {
		for _, m := range p.messages {
			if m.direct {
				continue
			}
			if _, known := lanes[m.outbox]; !known {
				outboxes = append(outboxes, m.outbox)
			}
			drafts[m.outbox], lanes[m.outbox] = append(drafts[m.outbox], m.draft), m.lanes
		}
	}
	for _, outbox := range outboxes {
		if err := k.target(outbox, lanes[outbox]).spool.Append(ctx, tx, spool.Run, drafts[outbox]); err != nil {
			return err
		}
	}
	return nil
}

// target returns an outbox. If it is not registered yet, it gets this number of lanes.
func (k *keeper) target(outbox string, lanes int) *target {
	t := k.spools[outbox]
	if t == nil {
		made := spool.New(k.outbox.Statements, outbox, lanes)
		t = &target{spool: made, announcer: spool.NewAnnouncer(made, k.outbox.DB, k.outbox.Logger)}
		k.spools[outbox] = t
	}
	return t
}

// announce wakes the forwarders of those outboxes that got rows, and counts the messages that came through the log.
func (k *keeper) announce(portions []portion) {
	counts, rows := map[string]int{}, map[string]bool{}
	for _, p := range portions {
		for _, m := range p.messages {
			counts[m.outbox]++
			rows[m.outbox] = rows[m.outbox] || !m.direct
		}
	}
	for outbox, n := range counts {
		if rows[outbox] {
			k.spools[outbox].announcer.Announce()
		}
		k.group.each(func(o tail.Outbox) {
			if o.Name == outbox {
				o.Meter.LogTaken(n)
			}
		})
	}
}

// confirm stores the position if much log without messages has passed, or a mark, and lets the receiver confirm what is stored and cannot be lost with
// the disk of this server: see [dialect.Statements.LogEnds]. The log may be much longer than what was read of it.
func (k *keeper) confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	if passed, due := k.intake.due(k.position.Position); due && k.position.Part == 0 {
		next := k.position
		next.Position = int64(passed) //nolint:gosec // a position
		next.Reserved = k.reservation(next.Position)
		if err := k.pass(ctx, next); err != nil {
			return fmt.Errorf("store the position in the log: %w", err)
		}
		k.position = next
		k.succeeds()
	}
	if k.position.Position == k.saved && k.savedBy == 0 {
		return nil
	}
	var end, safe uint64
	switch err := k.row(ctx, k.outbox.Statements.LogEnds(k.position.Server), &end, &safe); {
	case errors.Is(err, sql.ErrNoRows):
		return errFenced
	case err != nil:
		return fmt.Errorf("read the end of the log: %w", err)
	}
	if k.savedBy != 0 && safe >= k.savedBy {
		k.intake.confirm(uint64(k.saved)) //nolint:gosec // a position
		k.savedBy = 0
	}
	if k.savedBy == 0 && k.position.Position != k.saved {
		k.saved, k.savedBy = k.position.Position, end
	}
	return nil
}
