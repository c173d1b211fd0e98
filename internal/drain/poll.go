package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// reader is the component that decides which messages to read next, and reads them. It knows each
// reason to read again what was read before. It belongs to the goroutine of Run.
//
//	pace.go       when to read
//	fetch.go      one read, and what it found
//	watermark.go  up to which id no more messages can appear
//	late.go       transactions that are passed, and watched
//	sweep.go      messages behind the cursors
//	leftout.go    topics and keys that reads leave out
//	stride.go     how far a read goes over what it leaves out
//	together.go   all lanes in one range of ids
//	pagesize.go   how many messages a read asks for
//	ticks.go      the scheduled times of batches
//	restored.go   a database that went back to an earlier state
type reader struct {
	*core
	handler    Handler // excludes topics
	lease      *lease
	settle     *settler // has messages in memory, and hides keys
	tailing    *tailing
	watermark  watermark
	sweeping   sweep
	stride     stride
	ticks      ticks
	leftOut    leftOut
	last       lastRead
	reads      []string      // prepared reads, the most recently used last
	noticesEnd bool          // NoticesEnd of each message
	full       bool          // the memory is full: nothing is read until a message is settled
	ready      chan struct{} // closed after the first read
}

// lastRead is what the last read told for the next one.
type lastRead struct {
	given int64 // the database's counter of ids; see page
	dense bool  // most ids that it passed are those of messages that it returned
	large bool  // most payloads are large: see pagesize.go
	turn  dueTurn
}

func newReader(shared *core, handler Handler, l *lease, settle *settler, tailing *tailing) *reader {
	return &reader{
		core: shared, handler: handler, lease: l, settle: settle, tailing: tailing, stride: stride{span: firstStride}, ready: make(chan struct{}),
	}
}

// roomBeside returns how many messages may be read in addition to those in memory. full is true if
// the room is too small for a read.
func roomBeside(inMemory, page int) (room int, full bool) {
	room = (pagesInMemory-1)*page - inMemory
	return room, room < (page+1)/2
}

// room is roomBeside the messages that are in memory now.
func (r *reader) room() (room int, full bool) {
	size, _ := r.scheduler.Size()
	page := r.pageSize().messages
	leaving := min(len(r.settle.removal.underWay)+len(r.settle.part.underWay), page) + min(len(r.settle.setbacks.resting), page) + r.scheduler.HungMessages()
	return roomBeside(size-leaving, page)
}

// poll fetches messages when there is room and a poll is due.
func (r *reader) poll(ctx context.Context) error {
	r.leaveOut()
	page := r.pageSize().messages
	room, full := r.room()
	everything := r.pace.due(time.Now()) || !r.lanes.anyMore()
	r.full = full
	if r.config.Gather != nil {
		r.scheduler.Full(full)
	}
	r.settle.logFullMemory(page)
	if r.control.paused {
		r.isReady()
		return nil
	}
	if r.full {
		return r.pollRetries(ctx, room+page)
	}
	if everything && !r.pace.due(time.Now()) {
		return nil
	}
	lanes := r.lanes.hasMore()
	if everything {
		lanes = r.lanes.numbers()
	}
	first := r.watermark.unset()
	if first {
		if err := r.markFirst(ctx); err != nil || r.past.reopen {
			return err
		}
	}
	r.findWriters(ctx)
	if err := r.findBlocked(ctx); err != nil {
		return err
	}
	// A read has a bound only up to there. One that succeeds without a bound looks for it as well.
	unbounded := r.watermark.safe == 0 && r.watermark.given > r.stride.span
	if unbounded && (first || r.trouble.steps > 0) {
		if err := r.readOnlyMeta(ctx, false); err != nil || r.past.reopen {
			return err
		}
	}
	started := time.Now()
	limit := r.asksFor(min(room, page)) // leaves room to read the next page while this one is handled
	params := r.params(lanes, limit)
	params.Mark = r.watermark.wantsMark(started)
	if everything {
		params.Due = r.pace.slowStart.Allow(limit)
	}
	found, err := r.fetch(ctx, params)
	if bounded(params) {
		r.stride.took(time.Since(started), err != nil)
	}
	if err != nil {
		return err
	}
	taken := r.takeIn(params, found)
	r.plan(everything, len(found.messages) > 0, started, time.Now())
	r.tailing.named = false
	if !taken {
		r.pace.now()
	} else {
		r.tailing.observeRead(params, found, r.lease.members <= 1)
	}
	r.isReady()
	if everything && taken && r.sweep(ctx, lanes) { // after the read, so that a message that was just committed does not wait for it
		r.pace.now()
	}
	return nil
}

// isReady closes the channel that tells of the first read.
func (r *reader) isReady() {
	select {
	case <-r.ready:
	default:
		close(r.ready)
	}
}

// markFirst sets a mark before the first read. That read then knows which part of the ids that it
// passes over is final, so the next read does not pass over that part again. It may be all the
// messages that wait behind a retried one. Where a mark has to be looked for, a read before it says
// which ids have been given.
func (r *reader) markFirst(ctx context.Context) error {
	if r.looksForMarks() && r.watermark.given == 0 {
		if err := r.readOnlyMeta(ctx, false); err != nil || r.past.reopen {
			return err
		}
	}
	return r.readOnlyMeta(ctx, true)
}

// readOnlyMeta makes a read of no lane, which may set a mark.
func (r *reader) readOnlyMeta(ctx context.Context, mark bool) error {
	params := r.params(nil, 0)
	params.Mark = mark
	found, err := r.fetch(ctx, params)
	if err != nil {
		return err
	}
	r.takeIn(params, found)
	return nil
}

// pollRetries serves batches that are gathered. Incomplete batches may fill the memory for long,
// and messages that wait for another attempt must not wait for them.
func (r *reader) pollRetries(ctx context.Context, room int) error {
	if r.config.Gather == nil || room <= 0 || !r.pace.due(time.Now()) {
		return nil
	}
	started := time.Now()
	params := r.params(r.lanes.numbers(), 0)
	params.Due = r.pace.slowStart.Allow(room)
	found, err := r.fetch(ctx, params)
	if err != nil {
		return err
	}
	taken := r.takeIn(params, found)
	r.plan(true, len(found.messages) > 0, started, time.Now())
	if !taken {
		r.pace.now()
	}
	return nil
}

// params returns the parameters that all reads of these lanes share. Each lane is read from its
// cursor on, up to the limit of ready messages.
func (r *reader) params(lanes []int, limit int) dialect.FetchParams {
	params := dialect.FetchParams{
		Spool: r.id.Load(), Inline: r.pageSize().inline, Unordered: r.config.Unordered, PausedKeys: r.control.pausedKeys,
		LookFrom: r.watermark.lookFrom(),
	}
	r.leftOut.excludes = r.excludedTopics()
	r.readAgain(r.leftOut.excludes)
	params.Excluded, params.Held = merged(r.leftOut.excludes, r.leftOut.byLimits), r.settle.hiddenKeys()
	from := make(map[int]int64, len(lanes))
	for _, number := range lanes {
		from[number] = r.lanes.held[number].cursor
	}
	if limit > 0 {
		params.PerLane = max(limit/max(len(lanes), 1), 1)
		params.UpTo = r.readTogether(from, limit)
	}
	for _, number := range lanes {
		cursor := dialect.Cursor{Lane: number, After: from[number]}
		if params.UpTo == 0 {
			cursor.UpTo = r.lanes.held[number].before(r.upTo(cursor.After))
		}
		params.Cursors = append(params.Cursors, cursor)
	}
	params.Known = r.scheduler.Known(from)
	return params
}

// readAgain goes back to the beginning when an excluded topic is available again. Its messages must
// be read before newer messages of their keys, and this read may come before the call of Rescan.
func (r *reader) readAgain(excluded []string) {
	back := func(topic string) bool { return !slices.Contains(excluded, topic) }
	if slices.ContainsFunc(r.leftOut.excluded, back) {
		r.lanes.rewind()
	}
}

// takeIn passes the messages found to the scheduler, unless operators have changed settings that
// this process has not applied yet: a message that they removed may have held back others, which
// were not read. It reports false for a read that is thrown away, because a late transaction has
// ended or because the database went back.
func (r *reader) takeIn(params dialect.FetchParams, found *page) bool {
	if reason, lost := r.databaseWentBack(found, time.Now()); reason != "" {
		r.startOver(reason, lost)
		return false
	}
	r.observeVersion(found.version)
	r.lease.observeMembers(found)
	if found.version != r.control.version {
		return true
	}
	r.leftOut.excluded = r.leftOut.excludes
	now := time.Now()
	safe := r.watermark.observe(found.running, found.newest, len(found.messages), now)
	r.watermark.given = found.given
	if params.Mark {
		r.watermark.set(found.next, r.marked(found), found.running, now)
	}
	if r.rereadLate(params, found) || r.tick(found) {
		return false
	}
	found.trimDue(params, &r.last.turn)
	r.pace.slowStart.Found(params.Due, found.waited)
	r.last.dense = found.dense()
	r.adaptPageSize(found.messages)
	r.trimEarly(params, found)
	r.trimLater(found)
	for _, m := range found.messages {
		r.prepareToLoad(m)
	}
	if params.PerLane > 0 {
		r.remember(params, found, safe)
	}
	for _, m := range r.loadPage(params, found) {
		r.lanes.unexpose(m)
		if l := r.lanes.of(m); l != nil && l.suspect { // each read finds it, so that it stays exposed
			l.lower(m.Ref.ID)
		}
	}
	r.last.given = found.given
	return true
}

// marked returns the id of a mark, if that is beyond the ids read.
func (r *reader) marked(found *page) int64 {
	if r.looksForMarks() {
		return found.stored
	}
	return found.given
}

// looksForMarks reports whether the database cannot tell the id of a mark, so that a read looks for
// a stored one: on MariaDB, where a crash may set the counter of ids back to the last committed id.
func (c *core) looksForMarks() bool { return c.spool.Statements.FreeWriters != "" }

// remember stores how far each lane was read.
func (r *reader) remember(params dialect.FetchParams, found *page, safe int64) {
	for _, cursor := range params.Cursors {
		l := r.lanes.held[cursor.Lane]
		upTo, more := found.complete(cursor, params)
		if l.endsBefore > 0 && upTo >= l.endsBefore-1 {
			upTo, more = l.endsBefore-1, false
		}
		l.hasMore = more
		if (l.unblocked || r.config.Unordered) && !more && !params.LeavesOut() && found.waited < params.Due {
			l.exposedToRead = 0 // everything that the previous holder had read, this read has returned
		}
		l.cursor = max(cursor.After, min(safe, upTo))
	}
}

// prepareToLoad adds this process's own knowledge to a message.
func (r *reader) prepareToLoad(m *spool.Message) {
	m.Spool, m.Keep, m.NoticesEnd, m.Apart = r.spool, r.config.History > 0, r.noticesEnd, r.settle.setbacks.of(m) > 0
	switch {
	case r.config.Gather == nil:
	case r.ticking() && m.Ref.State == dialect.StateScheduled:
		m.Due = m.CreatedAt // its own time has come
	default:
		m.Due = r.config.Gather.Due(m.CreatedAt)
	}
	if r.crashedTooOften(m) {
		m.Doomed = fmt.Errorf("%w, %d times", errCrashed, m.Starts)
	}
	r.lanes.expose(m)
}

// loadPage gives the messages of a page to the scheduler, and returns those that it left out.
func (r *reader) loadPage(params dialect.FetchParams, found *page) []*spool.Message {
	t, w := &r.ticks, &r.watermark
	switch {
	case r.config.Gather == nil:
		return r.scheduler.Load(found.messages)
	case params.PerLane > 0 && params.Due > 0 && len(params.Cursors) == len(r.lanes.numbers()):
		committed := (w.final > t.mark || !w.pending && !w.lags()) && len(w.late.places) == 0
		t.whole = (committed || time.Since(t.began) >= openAtTick) && !r.lanes.anyMore() && found.waited < params.Due
	}
	return r.scheduler.LoadRead(found.now, t.whole, found.messages)
}
