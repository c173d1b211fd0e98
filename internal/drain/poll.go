package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// roomBeside returns how many messages may be read in addition to those in memory. full is true if
// the room is too small for a read.
func roomBeside(inMemory, page int) (room int, full bool) {
	room = (pagesInMemory-1)*page - inMemory
	return room, room < (page+1)/2
}

// room is roomBeside the messages that are in memory now.
func (d *Drainer) room() (room int, full bool) {
	size, _ := d.scheduler.Size()
	page := d.pageSize().messages
	leaving := min(d.settle.removal.underWay+len(d.settle.settling.part), page) + min(len(d.settle.setbacks.resting), page) + d.scheduler.Beside()
	return roomBeside(size-leaving, page)
}

// poll fetches messages when there is room and a poll is due.
func (d *Drainer) poll(ctx context.Context) error {
	d.leaveOut()
	page := d.pageSize().messages
	room, full := d.room()
	everything := d.pace.due(time.Now()) || !d.lanes.anyMore()
	d.full = full
	if d.config.Gather != nil {
		d.scheduler.Full(full)
	}
	d.settle.logFullMemory(page)
	if d.control.paused {
		d.readyOnce.Do(func() { close(d.ready) })
		return nil
	}
	if d.full {
		return d.pollRetries(ctx, room+page)
	}
	if everything && !d.pace.due(time.Now()) {
		return nil
	}
	lanes := d.lanes.hasMore()
	if everything {
		lanes = d.lanes.numbers()
	}
	d.stir(time.Now())
	first := d.watermark.unset()
	if first {
		if err := d.markFirst(ctx); err != nil || d.reopen {
			return err
		}
	}
	d.findWriters(ctx)
	// A read has a bound only up to there. One that succeeds without a bound looks for it as well.
	unbounded := d.watermark.safe == 0 && d.watermark.given > d.stride.span
	if unbounded && (first || d.trouble.steps > 0) {
		if err := d.readOnlyMeta(ctx, false); err != nil || d.reopen {
			return err
		}
	}
	started := time.Now()
	limit := d.readLimit(min(room, page)) // leaves room to read the next page while this one is handled
	params := d.params(lanes, limit)
	params.Mark = d.watermark.wantsMark(started)
	if everything {
		params.Due = d.slowStart.Allow(limit)
	}
	found, err := d.fetch(ctx, params)
	if bounded(params) {
		d.stride.took(time.Since(started), err != nil)
	}
	if err != nil {
		return err
	}
	taken := d.takeIn(params, found)
	d.plan(everything, len(found.messages) > 0, started, time.Now())
	d.tailing.lanes = false
	if !taken {
		d.pace.now()
	} else {
		d.observeRead(params, found)
	}
	d.readyOnce.Do(func() { close(d.ready) })
	if everything && taken && d.sweep(ctx, lanes) { // after the read, so that a message that was just committed does not wait for it
		d.pace.now()
	}
	return nil
}

// markFirst sets a mark before the first read. That read then knows which part of the ids that it
// passes over is final, so the next read does not pass over that part again. It may be all the
// messages that wait behind a retried one. Where a mark has to be looked for, a read before it says
// which ids have been given.
func (d *Drainer) markFirst(ctx context.Context) error {
	if d.looksForMarks() && d.watermark.given == 0 {
		if err := d.readOnlyMeta(ctx, false); err != nil || d.reopen {
			return err
		}
	}
	return d.readOnlyMeta(ctx, true)
}

// readOnlyMeta makes a read of no lane, which may set a mark.
func (d *Drainer) readOnlyMeta(ctx context.Context, mark bool) error {
	params := d.params(nil, 0)
	params.Mark = mark
	found, err := d.fetch(ctx, params)
	if err != nil {
		return err
	}
	d.takeIn(params, found)
	return nil
}

// pollRetries serves batches that are gathered. Incomplete batches may fill the memory for long,
// and messages that wait for another attempt must not wait for them.
func (d *Drainer) pollRetries(ctx context.Context, room int) error {
	if d.config.Gather == nil || room <= 0 || !d.pace.due(time.Now()) {
		return nil
	}
	started := time.Now()
	params := d.params(d.lanes.numbers(), 0)
	params.Due = d.slowStart.Allow(room)
	found, err := d.fetch(ctx, params)
	if err != nil {
		return err
	}
	taken := d.takeIn(params, found)
	d.plan(true, len(found.messages) > 0, started, time.Now())
	if !taken {
		d.pace.now()
	}
	return nil
}

// params returns the parameters that all reads of these lanes share. Each lane is read from its
// cursor on, up to the limit of ready messages.
func (d *Drainer) params(lanes []int, limit int) dialect.FetchParams {
	params := dialect.FetchParams{
		Spool: d.id.Load(), Inline: d.pageSize().inline, Unordered: d.config.Unordered, PausedKeys: d.control.pausedKeys,
		LookFrom: d.watermark.lookFrom(),
	}
	d.excludes = d.excludedTopics()
	d.readAgain(d.excludes)
	params.Excluded, params.Held = merged(d.excludes, d.leftOut), d.settle.hiddenKeys()
	from := make(map[int]int64, len(lanes))
	for _, number := range lanes {
		from[number] = d.lanes.held[number].cursor
	}
	if limit > 0 {
		params.PerLane = max(limit/max(len(lanes), 1), 1)
		params.UpTo = d.readTogether(from, limit)
	}
	for _, number := range lanes {
		cursor := dialect.Cursor{Lane: number, After: from[number]}
		if params.UpTo == 0 {
			cursor.UpTo = d.lanes.held[number].before(d.upTo(cursor.After))
		}
		params.Cursors = append(params.Cursors, cursor)
	}
	params.Known = d.scheduler.Known(from)
	return params
}

// readAgain goes back to the beginning when an excluded topic is available again. Its messages must
// be read before newer messages of their keys, and this read may come before the call of Rescan.
func (d *Drainer) readAgain(excluded []string) {
	back := func(topic string) bool { return !slices.Contains(excluded, topic) }
	if slices.ContainsFunc(d.excluded, back) {
		d.lanes.rewind()
	}
}

// takeIn passes the messages found to the scheduler, unless operators have changed settings that
// this process has not applied yet: a message that they removed may have held back others, which
// were not read. It reports false for a read that is thrown away, because a late transaction has
// ended or because the database went back.
func (d *Drainer) takeIn(params dialect.FetchParams, found *page) bool {
	if reason, lost := d.databaseWentBack(found, time.Now()); reason != "" {
		d.startOver(reason, lost)
		return false
	}
	d.observeVersion(found.version)
	d.observeMembers(found)
	if found.version != d.control.version {
		return true
	}
	d.excluded = d.excludes
	now := time.Now()
	safe := d.watermark.observe(found.running, found.newest, len(found.messages), now)
	d.watermark.given = found.given
	if params.Mark {
		d.watermark.set(found.next, d.marked(found), found.running, now)
	}
	if d.rereadLate(params, found) || d.tick(found) {
		return false
	}
	found.leaveSurplus(params, &d.surplus)
	d.slowStart.Found(params.Due, found.waited)
	d.dense = found.dense()
	d.adaptPageSize(found.messages)
	d.leaveEarly(params, found)
	d.leaveLater(found)
	for _, m := range found.messages {
		d.prepareToLoad(m)
	}
	if params.PerLane > 0 {
		d.remember(params, found, safe)
	}
	for _, m := range d.loadPage(params, found) {
		d.lanes.unexpose(m)
		if l := d.lanes.of(m); l != nil && l.suspect { // each read finds it, so that it stays exposed
			l.lower(m.Ref.ID)
		}
	}
	d.given = found.given
	return true
}

// observeMembers takes in how many processes share how many free lanes.
func (d *Drainer) observeMembers(found *page) {
	d.free, d.members = found.free, found.members
	if d.unfair() {
		d.pace.renewAt = time.Time{}
	}
}

// marked returns the id of a mark, if that is beyond the ids read.
func (d *Drainer) marked(found *page) int64 {
	if d.looksForMarks() {
		return found.stored
	}
	return found.given
}

// looksForMarks reports whether the database cannot tell the id of a mark, so that a read looks for
// a stored one: on MariaDB, where a crash may set the counter of ids back to the last committed id.
func (d *Drainer) looksForMarks() bool { return d.spool.Statements.FreeWriters != "" }

// remember stores how far each lane was read.
func (d *Drainer) remember(params dialect.FetchParams, found *page, safe int64) {
	for _, cursor := range params.Cursors {
		l := d.lanes.held[cursor.Lane]
		upTo, more := found.complete(cursor, params)
		if l.later > 0 && upTo >= l.later-1 {
			upTo, more = l.later-1, false
		}
		l.hasMore = more
		if !more && !params.LeavesOut() && found.waited < params.Due {
			l.exposedToRead = 0 // everything that the previous holder had read, this read has returned
		}
		l.cursor = max(cursor.After, min(safe, upTo))
	}
}

// prepareToLoad adds this process's own knowledge to a message.
func (d *Drainer) prepareToLoad(m *spool.Message) {
	m.Spool, m.Keep, m.Guarded, m.Apart = d.spool, d.config.History > 0, d.guarded, d.settle.setbacks.of(m) > 0
	switch {
	case d.config.Gather == nil:
	case d.ticking() && m.Ref.State == dialect.StateScheduled:
		m.Due = m.CreatedAt // its own time has come
	default:
		m.Due = d.config.Gather.Due(m.CreatedAt)
	}
	if d.crashedTooOften(m) {
		m.Doomed = fmt.Errorf("%w, %d times", errCrashed, m.Starts)
	}
	d.lanes.expose(m)
}

// loadPage gives the messages of a page to the scheduler, and returns those that it left out.
func (d *Drainer) loadPage(params dialect.FetchParams, found *page) []*spool.Message {
	t, w := &d.ticks, &d.watermark
	switch {
	case d.config.Gather == nil:
		return d.scheduler.Load(found.messages)
	case params.PerLane > 0 && params.Due > 0 && len(params.Cursors) == len(d.lanes.numbers()):
		committed := (w.final > t.mark || !w.pending && !w.lags()) && len(w.late.places) == 0
		t.whole = (committed || time.Since(t.began) >= openAtTick) && !d.lanes.anyMore() && found.waited < params.Due
	}
	return d.scheduler.LoadRead(found.now, t.whole, found.messages)
}
