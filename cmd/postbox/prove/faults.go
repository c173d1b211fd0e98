package prove

import (
	"context"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// What a run counts, also as lines on the standard output of its processes.
const (
	killed        = "killed"
	restarted     = "restarted"
	frozen        = "frozen"
	endings       = "ended"
	stuck         = "stuck"
	cut           = "cut"
	heldOpen      = "held open"
	rolledBack    = "rolled back"
	unknown       = "commit unknown"
	handlerFailed = "handler failed"
	slow          = "slow"
	refused       = "broker refused"
	lostAnswer    = "broker lost an answer"
	silence       = "broker silent"
)

func (r *run) brokerFailures() int {
	return r.counted(refused) + r.counted(lostAnswer) + r.counted(silence)
}

const (
	// Between two faults there is a pause of up to the longest one.
	mostFaultPause = 2 * time.Second
	faultShare     = 15 // of a run, at the most
	// mostOutage is how long a broker fails at the longest.
	mostOutage = 2 * time.Second
)

// fault happens to a process, or to the broker, for a while.
type fault func(ctx context.Context, p *process, last time.Duration)

// faults lets processes and the broker fail until ctx ends, and undoes all faults.
func (r *run) faults(ctx context.Context) {
	kinds := []fault{r.kill, r.kill, r.kill, r.restart, r.fail}
	if canFreeze && r.place.dialect != postbox.SQLite { // where one that is frozen in a transaction stops all
		kinds = append(kinds, r.freeze)
	}
	longest := min(mostFaultPause, r.Duration/faultShare)
	var deck []fault
	var failing sync.WaitGroup
	defer failing.Wait()
	for !r.hopeless() && wait(ctx, r.upTo(longest)) {
		if len(deck) == 0 {
			deck = append(deck, kinds...)
			r.dice.Shuffle(len(deck), func(a, b int) { deck[a], deck[b] = deck[b], deck[a] })
		}
		next, p, last := deck[0], r.processes[r.dice.IntN(len(r.processes))], r.upTo(mostOutage)
		deck = deck[1:]
		failing.Go(func() { next(ctx, p, last) })
	}
}

func (r *run) upTo(most time.Duration) time.Duration {
	return time.Duration(r.dice.Int64N(int64(most) + 1))
}

// kill kills a process. Others take its work over if it stays away for longer than its lease.
func (r *run) kill(ctx context.Context, p *process, last time.Duration) {
	p.busy.Lock()
	defer p.busy.Unlock()
	if ctx.Err() != nil {
		return
	}
	p.kill()
	r.count(killed)
	wait(ctx, last*3/2)
	p.start() //nolint:contextcheck // it lives as long as the run
}

// restart stops a process and starts it again, so that the others get its lanes.
func (r *run) restart(ctx context.Context, p *process, last time.Duration) {
	p.busy.Lock()
	defer p.busy.Unlock()
	if ctx.Err() != nil {
		return
	}
	p.stop()
	r.count(restarted)
	wait(ctx, last/4)
	p.start() //nolint:contextcheck // it lives as long as the run
}

// freeze stops a process for longer than its lease, so that it goes on with what others have taken
// over.
func (r *run) freeze(ctx context.Context, p *process, _ time.Duration) {
	p.busy.Lock()
	defer p.busy.Unlock()
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil || ctx.Err() != nil {
		return
	}
	freeze(cmd.Process)
	defer thaw(cmd.Process)
	r.count(frozen)
	wait(ctx, lease*3/2)
}

// fail lets the broker fail in one of its ways.
func (r *run) fail(ctx context.Context, _ *process, last time.Duration) {
	r.failing.Lock()
	defer r.failing.Unlock()
	if ctx.Err() != nil {
		return
	}
	r.ways++
	way := refusing + mode(r.ways)%(modes-refusing)
	r.broker.setMode(way)
	defer r.broker.setMode(working)
	r.count(map[mode]string{refusing: refused, losing: lostAnswer, silent: silence}[way])
	wait(ctx, last)
}
