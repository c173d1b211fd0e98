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

// A database goes back when a standby that lagged is promoted, when a backup is restored while processes run, and when a
// file is replaced by an older copy. It then gives out ids and fencing tokens again, and a drainer that went on from its
// memory would hide new messages behind old ones, read beyond them, or wait for transactions that never were.
//
// Guards in SQL protect each row: they name it by its id and its time. This file protects what is read: each read brings
// along what shows that the database is another one, or an older one, than the read before saw. Then the result is
// thrown away, and the drainer drops all that it has in memory and has not handed out. Messages that are being handled
// are settled as they end: the guards let that pass where the row is still there, and their keys wait until then. But what a handler of a queue
// wrote to the database is lost with it, so there a message is done only on a server that the process has read from since it was
// read itself, which the removal asks (Statements.RemoveWhere).
//
// A restart that lost nothing looks the same and costs one read more.

// ErrReplaced is returned where the file of a database was moved away or replaced by another one while it was open. Connections that
// are open go on with the old file, which no other process sees any more, so there is nothing that a drainer could do.
var ErrReplaced = errors.New("the file of the database was moved away or replaced while it was open: restart this process, and stop all processes before replacing the file")

// clusterInterval is how recently another incarnation must have answered to be a node of a cluster, such as Galera's behind
// a proxy, whose nodes answer in turn, and no promoted standby.
const clusterInterval = time.Minute

// past is what a drainer has learned from its reads that only grows, unless the database goes back.
type past struct {
	incarnations map[string]time.Time // of the database, and when each answered last
	latest       string               // the one that answered last
	lowest       int64                // transaction
	given        int64                // highest id, where the database tells it
	file         os.FileInfo          // of SQLite's database
	path         string
	since        time.Time // when this process started over last
}

// wentBack says how a read shows that the database is another one or an older one than the reads before saw; empty if it
// does not. lost says that something was lost for sure.
func (d *Drainer) wentBack(found *page, now time.Time) (reason string, lost bool) {
	p := &d.past
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
		return "the spool is not in it any more", true
	case found.version < d.control.version:
		return "what operators said last is not in it any more", true
	case !first && another && (!met || now.Sub(last) > clusterInterval):
		return "it was restarted, or another server has taken its place", false
	case found.given < before.given:
		return fmt.Sprintf("it has given its messages %d ids, and had given %d before", found.given, before.given), true
	case found.lowest < before.lowest:
		return fmt.Sprintf("its oldest transaction is %d, and was %d before", found.lowest, before.lowest), true
	}
	if id := d.scheduler.Replaced(found.messages); id != 0 && found.version == d.control.version {
		return fmt.Sprintf("another message has the id %d", id), true
	}
	return "", false
}

// startOver drops what the drainer has in memory and has not handed out, and lets it find its spool, its lanes and all
// messages anew.
func (d *Drainer) startOver(reason string, lost bool) {
	fields := watermill.LogFields{"spool": d.spool.Name(), "reason": reason}
	if lost {
		d.logger.Error("Postbox starts over, since its database went back to an earlier state", errWentBack, fields)
	} else {
		d.logger.Info("Postbox starts over, since its database may have gone back to an earlier state", fields)
	}
	for _, m := range d.scheduler.Outlive() {
		d.lanes.unload(m)
	}
	d.lanes.rewind()
	d.watermark, d.sweeping, d.passedOver = watermark{}, sweep{}, nil
	d.control.version, d.control.checkedAt = unknownVersion, time.Time{}
	d.past.since = time.Now()
	d.unsettled = slices.Concat(d.removal.waiting, d.held.entries, d.unsettled)
	d.removal.waiting, d.held.entries = nil, nil
	for _, e := range d.unsettled {
		d.revoke(e)
	}
	d.reopen, d.renewAt, d.pollAt, d.pause = true, time.Time{}, time.Time{}, d.config.PollMin
	d.scheduler.Extend(time.Time{}) // until it is known which lanes are held
}

// revoke discards the outcome Done of a message that was handed out before the drainer started over: the handler may have written to the
// database that was lost.
func (d *Drainer) revoke(e *schedule.Entry) {
	if d.config.Local && e.Outcome.Verdict == spool.Done && d.scheduler.HasOutlived(e) {
		e.Outcome = spool.Outcome{Verdict: spool.Postpone}
	}
}

// seen is the condition under which a message may be removed, see [dialect.Statements.RemoveWhere]. It is nil for a forwarder: what the broker
// has confirmed stays done, whatever happens to the database.
func (d *Drainer) seen() *dialect.Seen {
	if !d.config.Local {
		return nil
	}
	seen := &dialect.Seen{Given: d.past.given}
	for server, last := range d.past.incarnations {
		if !last.Before(d.past.since) {
			seen.Servers = append(seen.Servers, server)
		}
	}
	return seen
}

var errWentBack = errors.New("a promoted standby that lagged, a restored backup, or a sequence that was set back")

// openAgain finds the spool anew: what a restored database has under its name may have another id, or not be there.
func (d *Drainer) openAgain(ctx context.Context) error {
	if !d.reopen {
		return nil
	}
	found, err := d.spool.Find(ctx, d.db, d.spool.Statements.FindSpool)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return d.spool.OpenError(err)
	}
	if err != nil || found.ID != d.id || found.Lanes != d.spool.Lanes() {
		d.spool.Forget()
	}
	if err := d.tryOpen(ctx); err != nil {
		return err
	}
	d.reopen = false
	return nil
}

// checkFile fails where SQLite's file is not the one that was opened. Other databases have none that this process sees.
func (d *Drainer) checkFile(ctx context.Context) error {
	p := &d.past
	if d.spool.Statements.DatabaseFile == "" {
		return nil
	}
	if p.path == "" {
		err := d.db.QueryRowContext(ctx, d.spool.Statements.DatabaseFile).Scan(&p.path)
		if err != nil || p.path == "" { // in memory
			return err
		}
		p.file, _ = os.Stat(p.path) // a file system of the user's own is not asked again
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
