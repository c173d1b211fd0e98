package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// The log of the database is a second source of messages: see docs/log-tailing.md. A message of the feed is handed to
// the scheduler only if a poll at that moment would return it, and only after all earlier messages of its key. Any
// other message is left to the poll.
//
// A read of all lanes that found all there was is a complete read. What its snapshot sees, it has returned, or it has
// left it out for a reason that the next read knows too. Every other message comes through the feed, in the order of
// commits. That holds as long as
//
//   - no message was lost on the way, which is a gap. The transactions of lost messages may have been invisible to the
//     last complete read. A mark that is set after the gap is final when all of them have ended, see watermark.
//   - no lane must be read again from an earlier place, see lane.tailed.
//   - no message is in an old lane, see oldLane.
//   - it is known which keys have a message that waits for another attempt. Only this drainer lets messages of its lanes
//     wait, so it asks once and then adds the keys itself.
//
// The log is ahead of what sessions see. So before messages are taken, a snapshot is read, in a session like those of
// the drainer. A message whose transaction it does not see yet waits, and so do those after it.
type tailing struct {
	feed   *tail.Feed // nil: no log is tailed
	queue  []tail.Message
	server string // incarnation of the server from which the queue comes
	gaps   int64  // gaps of the feed that have been noticed

	// open: messages may be taken. read is the snapshot of the last complete read, nil before there was one.
	open bool
	read *tail.Snapshot
	// gap is set while messages may be missing that the last complete read did not see. gapMark is the number of marks
	// that had been set when the gap was noticed.
	gap     bool
	gapMark int
	// waiting are the keys of which a message waits for another attempt. known is false until the database has told
	// them. stale is set if some of them may not wait any more.
	waiting      map[int64]bool
	known, stale bool
	// left are the keys of messages that were left to the next complete read.
	left map[int64]bool
	// tryAt is when to ask again whether the first message of the queue is visible; zero if that is not awaited.
	tryAt time.Time
	pause time.Duration
}

const (
	// waitingMost is the maximum number of waiting keys with which messages are taken from the log.
	waitingMost = 10_000
	// invisibleMin and invisibleMax bound the pause between two looks for a transaction that is in the log and not yet
	// visible. Mostly it becomes visible within microseconds. If a synchronous standby is away, it takes long.
	invisibleMin = 100 * time.Microsecond
	invisibleMax = 50 * time.Millisecond
)

// changed returns the channel of the feed, which is nil without one.
func (t *tailing) changed() <-chan struct{} {
	if t.feed == nil {
		return nil
	}
	return t.feed.Changed()
}

// missed records a gap. No message is taken before a mark that is set from now on is final.
func (t *tailing) missed(marks int) {
	t.gap, t.gapMark, t.open, t.queue = true, marks, false, nil
}

// forget makes the drainer ask again which keys wait, since it has new lanes or another database.
func (t *tailing) forget() { t.known, t.open = false, false }

// restart makes the drainer begin anew, since the database may have gone back.
func (t *tailing) restart() {
	t.missed(0)
	t.forget()
	t.read = nil
}

// failed records that a message was not simply done. Its key may have to wait.
func (t *tailing) failed(m *spool.Message) {
	if t.feed != nil && m.HasKey {
		t.waiting[m.KeyHash], t.stale = true, true
	}
}

// startTailing makes the drainer take messages from a feed, if there is one.
func (d *Drainer) startTailing() {
	d.tailing = tailing{feed: d.configured.Feed, waiting: map[int64]bool{}, left: map[int64]bool{}}
	if d.tailing.feed != nil {
		d.tailing.missed(0)
	}
}

// followed reports whether new messages come through the feed, so that no wake-up is needed for them.
func (d *Drainer) followed() bool { return d.tailing.open }

// wantsTailMark reports whether a mark is missing that ends a gap.
func (d *Drainer) wantsTailMark(now time.Time) bool {
	t, w := &d.tailing, &d.watermark
	return t.gap && t.server != "" && !w.pending && w.marks == t.gapMark && !now.Before(w.markAt)
}

// endGap reports whether there is no gap, or it has ended: all transactions that began before it are visible. A late
// transaction, which is watched, may be one of them.
func (d *Drainer) endGap() bool {
	t, w := &d.tailing, &d.watermark
	if t.gap && w.final > t.gapMark && len(w.late.places) == 0 {
		t.gap = false
	}
	return !t.gap
}

// observeRead takes in that a page has been given to the scheduler. After a complete read, messages may be taken from
// the feed.
func (d *Drainer) observeRead(ctx context.Context, params dialect.FetchParams, found *page) error {
	t := &d.tailing
	if t.feed == nil || params.PerLane == 0 {
		return nil
	}
	d.noteState()
	t.open = false
	if found.version != d.control.version {
		return nil // the page was thrown away
	}
	complete := len(params.Cursors) == len(d.lanes.numbers()) && !d.lanes.anyMore()
	if !complete || found.seen == nil {
		return nil
	}
	t.read = found.seen
	if !d.endGap() {
		return nil
	}
	clear(t.left)
	if err := d.learnWaiting(ctx); err != nil {
		return err
	}
	t.open = t.server != "" && len(t.waiting) <= waitingMost
	return nil
}

// learnWaiting asks which keys have a message that waits for another attempt, if that is not known.
func (d *Drainer) learnWaiting(ctx context.Context) error {
	t := &d.tailing
	if t.known && !t.stale {
		return nil
	}
	rows, err := d.prepared.Query(ctx, d.db, d.spool.Statements.WaitingKeys(d.id, waitingMost+1))
	if err != nil {
		return fmt.Errorf("read the waiting keys of spool %q: %w", d.spool.Name(), err)
	}
	defer func() { _ = rows.Close() }()
	waiting := map[int64]bool{}
	for rows.Next() {
		var key int64
		if err := rows.Scan(&key); err != nil {
			return fmt.Errorf("read the waiting keys of spool %q: %w", d.spool.Name(), err)
		}
		waiting[key] = true
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the waiting keys of spool %q: %w", d.spool.Name(), err)
	}
	t.waiting, t.known, t.stale = waiting, true, false
	return nil
}

// noteState notices a gap of the feed, and the beginning and the end of the log.
func (d *Drainer) noteState() {
	t := &d.tailing
	server, gaps := t.feed.State()
	if gaps == t.gaps {
		return
	}
	t.server, t.gaps = server, gaps
	t.missed(d.watermark.marks)
	d.wakeSoon()
}

// takeTailed gives messages of the feed to the scheduler.
func (d *Drainer) takeTailed(ctx context.Context) error {
	t := &d.tailing
	if t.feed == nil {
		return nil
	}
	tryAt, now := t.tryAt, time.Now()
	t.tryAt = time.Time{}
	if d.control.paused {
		return nil
	}
	d.noteState()
	if d.skipSeen(); len(t.queue) == 0 {
		return nil
	}
	if l := d.lanes.held[t.queue[0].Lane]; !t.open || !l.tailed {
		d.wakeSoon()
		return nil
	}
	room, _ := d.room()
	if room <= 0 {
		return nil // until messages are settled
	}
	if now.Before(tryAt) {
		t.tryAt = tryAt
		return nil
	}
	excluded := slices.Concat(d.excluded, d.excludedTopics(), d.leftOut.Topics)
	seen, err := d.lookAhead(ctx)
	if err == nil && seen != nil {
		d.loadTailed(seen, room, excluded)
	}
	return err
}

// skipSeen drops messages at the head of the queue that a complete read has seen, or that are of lanes of other
// processes. If the queue is empty, it takes the next messages from the feed.
func (d *Drainer) skipSeen() {
	t := &d.tailing
	if len(t.queue) == 0 {
		messages, server, gaps := t.feed.Take()
		if gaps != t.gaps {
			t.server, t.gaps = server, gaps
			t.missed(d.watermark.marks)
		}
		t.queue = messages
	}
	for len(t.queue) > 0 && d.skips(t.queue[0]) {
		t.queue = t.queue[1:]
	}
}

// skips reports whether a message is not to be taken, now or later.
func (d *Drainer) skips(m tail.Message) bool {
	l := d.lanes.held[m.Lane]
	return l == nil || l.leaving || d.readSaw(m)
}

// readSaw reports whether the last complete read has seen the transaction of a message.
func (d *Drainer) readSaw(m tail.Message) bool {
	return d.tailing.read != nil && d.tailing.read.Sees(m.Transaction)
}

// lookAhead returns a new snapshot, or nil if a read must come first: the server is another one than that of the log, or
// operators have changed settings.
func (d *Drainer) lookAhead(ctx context.Context) (*tail.Snapshot, error) {
	t := &d.tailing
	var text, server string
	var version int64
	rows, err := d.prepared.Query(ctx, d.db, d.spool.Statements.LogSnapshot(d.id))
	if err != nil {
		return nil, fmt.Errorf("read a snapshot for spool %q: %w", d.spool.Name(), err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(&text, &server, &version); err != nil {
			return nil, fmt.Errorf("read a snapshot for spool %q: %w", d.spool.Name(), err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read a snapshot for spool %q: %w", d.spool.Name(), err)
	}
	if server != t.server || server != d.past.latest {
		t.missed(d.watermark.marks)
		d.pollAt = time.Time{}
		return nil, nil
	}
	if d.observeVersion(version); version != d.control.version {
		d.wakeSoon()
		return nil, nil
	}
	seen, err := tail.ParseSnapshot(text)
	return &seen, err
}

// loadTailed gives the messages to the scheduler whose transactions the snapshot sees, as far as there is room.
func (d *Drainer) loadTailed(seen *tail.Snapshot, room int, excluded []string) {
	t := &d.tailing
	var page []*spool.Message
	poll, now := false, time.Now()
	for len(t.queue) > 0 && len(page) < room {
		m := t.queue[0]
		if !d.skips(m) {
			l := d.lanes.held[m.Lane]
			if !l.tailed {
				poll = true
				break
			}
			if !seen.Sees(m.Transaction) {
				t.pause = min(max(2*t.pause, invisibleMin), invisibleMax)
				t.tryAt = now.Add(t.pause)
				break
			}
			t.pause = 0
			if d.leavesToPoll(m, excluded) {
				poll = true
			} else {
				page = append(page, tailedMessage(m, l, d.config.Unordered))
			}
		}
		t.queue = t.queue[1:]
	}
	for _, m := range page {
		d.prepareToLoad(m)
		d.watermark.newest = max(d.watermark.newest, m.Ref.ID)
	}
	d.watermark.read += len(page)
	left := d.scheduler.Load(page)
	for _, m := range left {
		d.lanes.unload(m)
		t.left[m.KeyHash], poll = true, true
	}
	d.configured.Meter.LogTaken(len(page) - len(left))
	if poll {
		d.wakeSoon()
	}
}

// FeedLimits returns how much a feed for a drainer of this configuration may hold: half a page, which the drainer may
// have taken from the feed, and half a page that is still there.
func FeedLimits(c Config) tail.Limits {
	half := max(c.PageSize/2, 1)
	return tail.Limits{Messages: half, Inline: c.inline(), Bytes: half * c.inline()}
}

// leavesToPoll reports whether a message is left to the next read. Then so are later messages of its key.
func (d *Drainer) leavesToPoll(m tail.Message, excluded []string) bool {
	t := &d.tailing
	leaves := m.Metadata == nil || slices.Contains(excluded, m.Topic) || m.HasKey && slices.Contains(d.leftOut.Keys, m.KeyHash) ||
		m.HasKey && (d.control.pausedKeys || t.waiting[m.KeyHash] || t.left[m.KeyHash])
	if leaves && m.HasKey {
		t.left[m.KeyHash] = true
	}
	return leaves
}

// tailedMessage returns the message as a read would.
func tailedMessage(from tail.Message, of *lane, unordered bool) *spool.Message {
	m := &spool.Message{
		Ref:       dialect.Ref{State: dialect.StateReady, Lane: from.Lane, Token: of.token, ID: from.ID, CreatedAt: from.CreatedAt},
		Topic:     from.Topic,
		MessageID: from.MessageID,
		Key:       from.Key,
		HasKey:    from.HasKey && !unordered,
		KeyHash:   from.KeyHash,
		CreatedAt: time.UnixMicro(from.CreatedAt),
		Size:      from.Size,
	}
	m.Decode(from.Payload, from.Metadata)
	return m
}
