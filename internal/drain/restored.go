package drain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A database goes back when a lagging standby is promoted, when a backup is restored while
// processes run, and when a file is replaced by an older copy. It then issues the same ids and
// fencing tokens again. A drainer that continued with its memory would hide new messages behind old
// ones, read beyond them, or wait for transactions that never existed.
//
// Conditions in SQL protect each row: they identify it by its id and its time. This file protects
// the reads. Each read returns data that shows whether the database is another one, or an older
// one, than the previous reads saw. If so, the result is thrown away, and the drainer drops all
// messages in memory that it has not handed out. Messages that are being handled are settled as
// they end: the conditions permit that if the row still exists, and their keys wait until then. But
// the writes of a queue's handler are lost with the database. So there a message is done only on a
// server that the process has read from since the message itself was read. The removal checks this
// (Statements.RemoveWhere).
//
// A restart without loss looks the same and costs one additional read.

// ErrReplaced is returned if the file of a database was moved away or replaced by another one while
// it was open. Open connections continue with the old file, which no other process sees any more,
// so the drainer cannot recover.
var ErrReplaced = errors.New("the file of the database was moved away or replaced while it was open: restart this process, and stop all processes before replacing the file")

// clusterInterval tells a cluster from a promoted standby. Another incarnation that has answered
// within this interval is a node of a cluster, such as Galera's behind a proxy, whose nodes answer
// in turn.
const clusterInterval = time.Minute

// past holds values that a drainer has read and that only grow, unless the database goes back.
type past struct {
	incarnations map[string]time.Time // incarnations of the database, with the time of the last answer of each
	latest       string               // the incarnation that answered last
	lowest       int64                // lowest running transaction
	given        int64                // highest id given, if the database tells it
	file         os.FileInfo          // the file of SQLite's database
	path         string
	since        time.Time // when this process last started over
	reopen       bool      // the database went back, and the spool must be looked up again
}

// databaseWentBack returns how a read shows that the database is another one, or an older one, than
// the previous reads saw. The reason is empty if it does not. lost is true if data was certainly
// lost.
func (r *reader) databaseWentBack(found *page, now time.Time) (reason string, lost bool) {
	p := &r.past
	last, met := p.incarnations[found.incarnation]
	first := len(p.incarnations) == 0
	if first {
		p.incarnations = map[string]time.Time{}
	}
	another := found.incarnation != p.latest
	p.incarnations[found.incarnation], p.latest = now, found.incarnation
	before := *p
	p.lowest, p.given = found.lowest, found.given
	switch {
	case found.version == unknownVersion:
		return "it no longer contains the spool", true
	case found.version < r.control.version:
		return "it no longer contains the latest change by an operator", true
	case !first && another && (!met || now.Sub(last) > clusterInterval):
		return "it was restarted, or another server has taken its place", false
	case found.given < before.given:
		return fmt.Sprintf("it has given its messages %d ids, and had given %d before", found.given, before.given), true
	case found.lowest < before.lowest:
		return fmt.Sprintf("its oldest transaction is %d, and was %d before", found.lowest, before.lowest), true
	}
	if id := r.scheduler.Replaced(found.messages); id != 0 && found.version == r.control.version {
		return fmt.Sprintf("another message has the id %d", id), true
	}
	return "", false
}

// startOver drops the messages in memory that the drainer has not handed out, and makes it look up
// its spool, its lanes and all messages again.
func (r *reader) startOver(reason string, lost bool) {
	fields := watermill.LogFields{"spool": r.spool.Name(), "reason": reason}
	if lost {
		r.logger.Error("Postbox starts over, since its database went back to an earlier state", errWentBack, fields)
	} else {
		r.logger.Info("Postbox starts over, since its database may have gone back to an earlier state", fields)
	}
	for _, m := range r.scheduler.Outlive() {
		r.lanes.unexpose(m)
	}
	r.lanes.rewind()
	r.watermark, r.sweeping, r.leftOut.excluded = watermark{}, sweep{}, nil
	r.control.version, r.control.checkedAt = unknownVersion, time.Time{}
	r.past.since = time.Now()
	r.settle.done, r.settle.unsettled = nil, slices.Concat(r.settle.done, r.settle.unsettled)
	for _, e := range r.settle.unsettled {
		r.revoke(e)
	}
	r.past.reopen, r.pace = true, pace{pause: r.config.PollMin, slowStart: r.pace.slowStart}
	r.scheduler.Extend(time.Time{}) // until the held lanes are known
	r.scheduler.LoseSlots()
}

// revoke discards the outcome Done of a message that was handed out before the drainer started
// over: the handler may have written to the database that was lost. It is called before each try to
// write the outcome, since a try may be under way when the drainer starts over.
func (c *core) revoke(e *schedule.Entry) {
	if c.config.Local && e.Outcome.Verdict == spool.Done && c.scheduler.HasOutlived(e) {
		e.Outcome = spool.Outcome{Verdict: spool.Postpone}
	}
}

// seen returns the condition under which a message may be removed, see
// [dialect.Statements.RemoveWhere]. It is nil for a forwarder: a message that the broker has
// confirmed stays done, whatever happens to the database.
func (s *settler) seen() *dialect.Seen {
	if !s.config.Local {
		return nil
	}
	seen := &dialect.Seen{Given: s.past.given}
	for server, last := range s.past.incarnations {
		if !last.Before(s.past.since) {
			seen.Servers = append(seen.Servers, server)
		}
	}
	return seen
}

var errWentBack = errors.New("the cause may be a promoted standby that lagged, a restored backup, or a sequence that was set back")

// openAgain looks up the spool again: in a restored database the spool may have another id, or may
// be missing.
func (d *Drainer) openAgain(ctx context.Context) error {
	if !d.past.reopen {
		return nil
	}
	id, err := d.spool.Find(ctx, d.db, d.spool.Statements.FindSpool)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return d.spool.OpenError(err)
	}
	if err != nil || id != d.id.Load() {
		d.spool.Forget()
	}
	if err := d.tryOpen(ctx); err != nil {
		return err
	}
	d.past.reopen = false
	return nil
}

// checkFile returns an error if SQLite's file is not the one that was opened. Other databases have
// no file that this process sees.
func (c *core) checkFile(ctx context.Context) error {
	p := &c.past
	if c.spool.Statements.DatabaseFile == "" {
		return nil
	}
	if p.path == "" {
		err := c.db.QueryRowContext(ctx, c.spool.Statements.DatabaseFile).Scan(&p.path)
		if err != nil || p.path == "" { // a database in memory
			return err
		}
		p.file, _ = os.Stat(p.path) // with a file system of the user's own, Stat fails and is not tried again
	}
	if p.file == nil {
		return nil
	}
	now, err := os.Stat(p.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the file of the database: %w", err)
	}
	if err != nil || !os.SameFile(p.file, now) {
		return fmt.Errorf("%s: %w", p.path, ErrReplaced)
	}
	return nil
}
