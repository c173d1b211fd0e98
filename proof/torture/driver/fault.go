package driver

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/proof/torture/schedule"
)

// inject lets the faults happen, each at its time, until ctx ends, and returns when all are undone.
func (r *run) inject(ctx context.Context, faults []schedule.Fault) {
	begin := time.Now()
	for _, fault := range faults {
		if !wait(ctx, time.Until(begin.Add(fault.At))) {
			break
		}
		r.say("%7.1fs  %s", time.Since(begin).Seconds(), fault)
		r.history.Write(history.Record{Kind: history.Fault, Detail: fault.String()})
		r.faults[fault.Kind]++
		r.faulting.Go(func() {
			from := time.Now()
			if err := r.happen(ctx, fault); err != nil {
				r.say("          %s: %s", fault, err)
			}
			r.noteTrouble(fault, from)
		})
	}
	wait(ctx, time.Until(begin.Add(r.Duration)))
}

// happen lets a fault happen, and undoes it when its time is over or ctx ends. Its error says that
// it could not happen, such as to a database that is away.
func (r *run) happen(ctx context.Context, f schedule.Fault) error {
	last := func() { wait(ctx, f.For) }
	p := r.processes[f.Process]
	switch f.Kind {
	case schedule.Kill:
		p.signal(syscall.SIGKILL)
	case schedule.Pause:
		p.pause(last)
	case schedule.Suspend:
		return p.suspend(last)
	case schedule.Restart:
		return r.restart(p)
	case schedule.Clock:
		_, pool := p.changes()
		p.change(f.Skew, pool)
		return r.restart(p)
	case schedule.Pool:
		clock, _ := p.changes()
		p.change(clock, f.Connections)
		return r.restart(p)
	case schedule.Cut, schedule.Slow, schedule.HalfOpen:
		return r.breakWire(r.wires.between(f.Process, f.Service), f, last)
	case schedule.Crash, schedule.Shutdown:
		return r.stopDatabase(f.Immediate, last)
	case schedule.Failover, schedule.FailoverSync, schedule.Restore:
		return r.replaceDatabase(ctx, f, last)
	case schedule.Rabbit, schedule.Kafka:
		err := r.services.outage(string(f.Kind), f.Immediate, last)
		if err != nil {
			r.fail(err) // a broker is always there to be stopped
		}
		return err
	case schedule.Terminate:
		_, err := ledger.Terminate(ctx, r.db, f.Share)
		return err
	case schedule.Log:
		return r.cutLog(ctx, f.For)
	case schedule.Hold:
		release, err := ledger.HoldOpen(context.WithoutCancel(ctx), r.db)
		if err != nil {
			return err
		}
		defer release()
		last()
	case schedule.Hog:
		return r.hog(ctx, last)
	case schedule.Repeat:
		return r.repeat(ctx, f.Number)
	}
	return nil
}

// noteTrouble keeps what a fault may have done to a process, for the checker.
func (r *run) noteTrouble(f schedule.Fault, from time.Time) {
	wire := slices.Contains([]schedule.Kind{schedule.Cut, schedule.Slow, schedule.HalfOpen}, f.Kind) && f.Service == "postgres"
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles = append(r.troubles, checker.Trouble{
		Kind: string(f.Kind), Process: f.Process, From: from, To: time.Now(),
		Sleeps: f.Kind == schedule.Pause || f.Kind == schedule.Suspend, Database: wire || f.Kind == schedule.Terminate,
	})
}

// restart stops a process cleanly. It has to stop whatever else is broken, so a failure is a
// violation.
func (r *run) restart(p *process) error {
	err := p.end()
	if err != nil {
		r.violate(fmt.Errorf("G12: %w", err))
	}
	return err
}

func (r *run) breakWire(w *wire, f schedule.Fault, last func()) error {
	w.broken.Lock()
	defer w.broken.Unlock()
	var err error
	switch f.Kind {
	case schedule.Cut:
		w.rip()
		last()
		return w.mend()
	case schedule.Slow:
		err = w.slow(f.Delay)
	default:
		err = w.swallow()
	}
	last()
	w.cure()
	return err
}

// logPause is the pause between two looks for a connection that sends the log.
const logPause = 100 * time.Millisecond

// cutLog lets no process have the log of the database for a while.
func (r *run) cutLog(ctx context.Context, last time.Duration) error {
	for end := time.Now().Add(last); time.Now().Before(end); {
		if err := ledger.TerminateLog(ctx, r.db); err != nil {
			return err
		}
		if !wait(ctx, logPause) {
			break
		}
	}
	return nil
}

// hog takes connections until the database has none left.
func (r *run) hog(ctx context.Context, last func()) error {
	db, err := sql.Open("postgres", r.database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for {
		conn, err := db.Conn(ctx)
		if err != nil {
			break
		}
		defer func() { _ = conn.Close() }() // all of them, at the end
	}
	last()
	return nil
}

// repeat publishes messages once more that were published before, in an order of no meaning.
func (r *run) repeat(ctx context.Context, number int) error {
	intents, err := ledger.Published(ctx, r.db, number)
	if err != nil {
		return err
	}
	repeated, err := r.direct.Repeat(intents)
	for _, i := range repeated {
		r.history.Write(history.Record{
			Kind: history.Repeated, Message: i.Message, Topic: i.Topic, Key: i.Key, Turn: i.Turn, Plan: i.Plan,
		})
	}
	return err
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
