package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// modelProcess is a process that has a drainer and no goroutines.
type modelProcess struct {
	*world

	d        *Drainer
	logger   *modelLogger
	runs     []*modelRun
	ended    []turn // not settled
	held     []turn // which could not be settled
	excluded []string
	entered  chan *modelRun
	stepping bool
	steps    int64
	within   bool // an action within another one's step
	circuits *circuit.Circuits
	seen     modelCalls
}

// modelRun is a batch that is handled: a goroutine that stands still in the handler.
type modelRun struct {
	batch    []*schedule.Entry
	messages []*spool.Message // those that the handler got
	reply    chan []spool.Outcome
	finished chan []spool.Outcome
	outcomes []spool.Outcome // of messages, once their transactions have ended

	// The call to the broker, where there is one, which the circuits may not allow.
	call    circuit.Call
	allowed bool
	began   int64
}

// modelLogger notes that a drainer could not reach its database, which does not happen here.
type modelLogger struct {
	watermill.NopLogger

	err error
}

func (l *modelLogger) Error(msg string, err error, _ watermill.LogFields) {
	expected := errors.Is(err, spool.ErrRowLocked) || errors.Is(err, errMemoryFull) // the model locks rows, and its pages are small
	ended := msg == "Postbox moved a message to the dead letters" || strings.HasPrefix(msg, "Postbox parked a message")
	if !ended && !expected {
		l.err = fmt.Errorf("%s: %w", msg, err)
	}
}

func (w *world) spawn() {
	if len(w.processes) == modelProcesses {
		return
	}
	w.spawned++
	config := w.settings
	config.Holder = fmt.Sprintf("p%d", w.spawned)
	if w.wal != nil {
		config.Feed = tail.NewFeed()
	}
	p := &modelProcess{world: w, logger: &modelLogger{}, entered: make(chan *modelRun)}
	p.d = New(w.db.DB, spool.New(w.statements, w.spool.Name()), p, config, p.logger)
	p.d.settle.start = func(work func()) { work() } // what is random, rapid decides
	p.d.prepared = w.prepared
	p.d.tailing.others = spool.NewAnnouncer(p.d.spool, nil, p.logger)          // one that sends no statement
	p.d.pace.slowStart.Now = func() time.Time { return time.Unix(p.steps, 0) } // a second a step
	p.d.workers.started = 1 << 20                                              // it never starts a worker
	p.d.pace.pause = config.PollMin
	p.d.scheduler.SetWorkers(config.Workers)
	require.NoError(w, p.d.tryOpen(w.ctx))
	require.NoError(w, p.d.learnServer(w.ctx))
	p.d.settle.patience = LockPatience
	w.connect(p)
	w.processes = append(w.processes, p)
}

// log tells the story of a run that fails.
func (p *modelProcess) log(format string, args ...any) {
	p.Logf(p.d.configured.Holder+" "+format, args...)
}

// Handle gives the batch to the model and stands still until it knows the outcomes.
func (p *modelProcess) Handle(_ context.Context, batch []*spool.Message) []spool.Outcome {
	run := &modelRun{messages: batch, reply: make(chan []spool.Outcome)}
	p.entered <- run
	return <-run.reply
}

// Excluded is called between what a step settles and what it reads. What others do meanwhile, and
// this process's own workers, may happen then.
func (p *modelProcess) Excluded() []string {
	if !p.stepping || p.within {
		return p.leftOut()
	}
	p.within = true
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(p.T, "meanwhile") {
		act := rapid.SampledFrom([]func(){
			p.take, p.finish, p.finish, p.append,
			func() { p.withProcess((*modelProcess).step) },
			func() { p.withProcess((*modelProcess).finish) },
			func() { p.withProcess((*modelProcess).loseLease) },
			p.unpark, p.takeAway, p.pauseKey, p.pauseTopic, p.passTime,
		}).Draw(p.T, "act")
		act()
		p.check()
	}
	p.within = false
	return p.leftOut()
}

// leftOut returns the topics that are left out, by the model's choice or since they have an outage.
func (p *modelProcess) leftOut() []string {
	away := p.circuits.Excluded()
	p.excluding = p.excluding || len(away) > 0
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(p.excluded, away))))
}

// step is a turn of the drainer's loop. What is due by then, rapid decides, unless the drainer
// wants it at once.
func (p *modelProcess) step() {
	if p.stepping {
		return
	}
	p.due(&p.d.pace.renewAt, "renew")
	p.due(&p.d.pace.at, "poll", "poll")
	p.due(&p.d.reader.watermark.markAt, "mark", "mark", "mark")
	p.due(&p.d.reader.watermark.setAt, "patience", "patience")
	p.due(&p.d.reader.watermark.askAt, "ask", "ask", "ask")
	p.due(&p.d.settle.setbacks.lockedUntil, "locks")
	p.due(&p.d.control.checkedAt, "settings") // the time of the last look
	if rapid.IntRange(0, 9).Draw(p.T, "sweep") == 0 {
		p.d.reader.sweeping.next = time.Time{}
	} else {
		p.d.reader.sweeping.next = time.Now().Add(time.Hour)
	}
	p.followLog()
	p.stepNow()
}

// due makes something due now, or in an hour, which it is not said to be now.
func (p *modelProcess) due(at *time.Time, names ...string) {
	odds := append([]string{"", ""}, names...)
	if at.IsZero() || rapid.SampledFrom(odds).Draw(p.T, "due") != "" {
		*at = time.Time{}
	} else {
		*at = time.Now().Add(time.Hour)
	}
}

// stepNow is a step without such decisions. Then it tries no locked row again, also on a machine on
// which a second has passed since it found the row locked.
func (p *modelProcess) stepNow() {
	if !p.d.settle.setbacks.lockedUntil.IsZero() {
		p.d.settle.setbacks.lockedUntil = time.Now().Add(time.Hour)
	}
	ended := p.beginSettling()
	p.log("steps")
	p.steps++
	p.stepping = true
	p.d.step(p.ctx)
	p.stepping = false
	p.putOff(ended)
	p.log("has lanes %v, in memory %v", p.d.lanes.numbers(), p.inMemory())
	p.learnIDs()
	require.NoError(p, p.logger.err)
	require.Empty(p, p.d.settle.unsettled)
}

// take lets a worker have a batch, if there is one for it.
func (p *modelProcess) take() {
	batch := p.d.scheduler.TryTake()
	if batch == nil {
		return
	}
	lanes := p.readLanes()
	for _, e := range batch {
		p.log("takes %s under %d", e.Message.MessageID, e.Message.Ref.Token)
	}
	for i, e := range batch {
		p.mayRun(p, batch[:i], e, lanes)
		require.True(p, len(batch) == 1 || !e.Message.Suspect(), "a suspect runs alone")
	}
	finished := make(chan []spool.Outcome, 1)
	go func() {
		outcomes := make([]spool.Outcome, len(batch))
		p.d.workers.handle(p.ctx, batch, outcomes)
		p.d.workers.park(outcomes)
		finished <- outcomes
	}()
	var run *modelRun
	select {
	case run = <-p.entered:
		run.batch, run.finished, run.began = batch, finished, p.tick()
		run.call, run.allowed = p.circuits.Begin(batch[0].Message.Topic)
		p.runs = append(p.runs, run)
	case outcomes := <-finished: // nothing of it was fit for the handler
		p.end(batch, outcomes)
	}
	for _, e := range batch {
		if m := p.byID(e.Message.Ref.ID); m != nil {
			p.countStart(m, e.Message, run != nil && slices.Contains(run.messages, e.Message))
		}
	}
}

// countStart checks whether a start was counted, and whether a message that may have brought
// processes down is handled again.
func (p *modelProcess) countStart(m *modelMessage, message *spool.Message, handled bool) {
	failed, most := message.Starts, mostCrashes
	if p.settings.Retry.Attempts > 0 {
		failed, most = failed+message.Attempts, p.settings.Retry.Attempts
	}
	doomed := message.Starts > 1 && failed >= most
	require.Equal(p, doomed, message.Doomed != nil, m.name)
	require.False(p, doomed && handled, "%s has used up its attempts and is handled", m.name)
	suspect := message.Exposed || message.Suspect()
	if handled { // of a batch, the rest is put back as soon as one cannot be started
		require.Equal(p, suspect && !doomed, message.Started == 1, "%s: its start is counted if it is suspect", m.name)
	}
	m.starts += message.Started
}

// inMemory returns the ids of the messages that the process has read and not settled.
func (p *modelProcess) inMemory() (ids []int64) {
	for _, m := range p.d.scheduler.Snapshot().Messages {
		ids = append(ids, m.Ref.ID)
	}
	return ids
}

// finish lets the handler of a batch go on: first its transactions end, and some time later it
// returns.
func (p *modelProcess) finish() {
	if len(p.runs) == 0 {
		return
	}
	run := p.runs[rapid.IntRange(0, len(p.runs)-1).Draw(p.T, "run")]
	switch {
	case run.outcomes != nil:
	case p.broker != nil:
		p.publish(run)
	default:
		p.decide(run, func(*spool.Message) spool.Verdict {
			return rapid.SampledFrom([]spool.Verdict{spool.Done, spool.Done, spool.Done, spool.Retry, spool.Retry, spool.Again, spool.Dead, spool.Wait, spool.Postpone}).Draw(p.T, "verdict")
		})
		if p.effective && rapid.Bool().Draw(p.T, "later") {
			return
		}
	}
	p.reply(run)
}

func (p *modelProcess) reply(run *modelRun) {
	run.reply <- run.outcomes
	p.runs = slices.DeleteFunc(p.runs, func(r *modelRun) bool { return r == run })
	p.end(run.batch, <-run.finished)
}

func (p *modelProcess) end(batch []*schedule.Entry, outcomes []spool.Outcome) {
	for i, e := range batch {
		p.log("ends %s with %d", e.Message.MessageID, outcomes[i].Verdict)
		p.ended = append(p.ended, turn{message: e.Message, outcome: outcomes[i]})
	}
	p.d.scheduler.Finish(batch, outcomes)
}

// through says whether a message is before another one in a batch, or has ended well in this
// process, which holds its lane since then, and is only not settled.
func (p *modelProcess) through(before []*schedule.Entry, m *modelMessage, token int64) bool {
	for _, e := range before {
		if e.Message.Ref.ID == m.id {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(p.ended, p.held), func(t turn) bool {
		return t.message.Ref.ID == m.id && t.outcome.Through() && t.message.Ref.Token == token
	})
}

func (p *modelProcess) exclude() {
	p.excluding = true
	if len(p.excluded) > 0 {
		p.excluded = nil
		p.d.pace.at = time.Time{} // what Rescan does
		return
	}
	p.excluded = []string{rapid.SampledFrom([]string{"x", "y"}).Draw(p.T, "topic")}
	p.log("leaves out %v", p.excluded)
}

// loseLease lets the leases of a process end, which stands still as long. It knows that it must not
// hand out anything, and nothing else.
func (p *modelProcess) loseLease() {
	if p.stepping {
		return
	}
	p.expire(p.d.configured.Holder)
	p.d.scheduler.Extend(time.Time{})
}

// crash is the end of a process of which nobody knows until its leases end.
func (p *modelProcess) crash() {
	if p.stepping {
		return
	}
	p.abandoned = append(p.abandoned, p.runs...)
	p.ghosts = append(p.ghosts, p.d.configured.Holder)
	p.leaveWorld()
}

func (p *modelProcess) leaveWorld() {
	p.processes = slices.DeleteFunc(p.processes, func(other *modelProcess) bool { return other == p })
	if p.wal != nil && p.wal.receiver == p {
		p.wal.receiver = nil
	}
}

// stop is the clean end of a process, whose handlers end first.
func (p *modelProcess) stop() {
	if p.stepping {
		return
	}
	p.d.lease.stopping = true
	p.d.scheduler.Stop()
	p.d.lease.giveAway()
	require.NoError(p, p.d.lease.enroll(p.ctx))
	require.NoError(p, p.d.lease.releaseLeaving(p.ctx))
	for len(p.runs) > 0 {
		p.finish()
	}
	p.d.settle.setbacks.lockedUntil = time.Time{}
	ended := p.beginSettling()
	require.NoError(p, p.d.settle.settleFinished(p.ctx))
	p.putOff(ended)
	require.NoError(p, p.d.handBackAll(p.ctx))
	p.learnIDs()
	p.leaveWorld()
}

// abandon ends the goroutine of a run.
func (r *modelRun) abandon() {
	r.reply <- make([]spool.Outcome, len(r.messages))
	<-r.finished
}
