package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// plan says how many orders shall go through the shop, how often it is killed meanwhile, and how
// rarely something else goes wrong.
type plan struct{ Orders, Kills, OneIn int }

const (
	lookEvery   = 20 * time.Millisecond
	reportEvery = time.Second
	// patience is how long the shop may take without getting any further.
	patience = 60 * time.Second
	// untilTheLastKill is the part of the work, out of ten, during which the shop is killed.
	untilTheLastKill = 9
	tenths           = 10
)

// demo runs the shop in a process of its own, kills that, starts it again, and counts in the
// database meanwhile.
type demo struct {
	task  assignment
	out   io.Writer
	books books

	process  *process
	kills    int
	killAt   []int // the amounts of work after which to kill
	started  time.Time
	work     int
	workedAt time.Time
}

// runDemo runs the plan in a directory that it removes afterwards. It returns what the database
// says at the end, and an error where that is not what it should be.
func runDemo(ctx context.Context, out io.Writer, p plan) (result outcome, err error) {
	dir, err := os.MkdirTemp("", "postbox-quickstart-")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	file := filepath.Join(dir, "shop.db")
	db, err := openDatabase(ctx, file)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	d := &demo{
		task: assignment{File: file, Plan: p}, out: out, books: books{db: db},
		killAt: p.instants(), started: time.Now(), workedAt: time.Now(),
	}
	d.introduce()
	if err := d.run(ctx); err != nil {
		return result, err
	}
	if result, err = d.books.outcome(ctx, d.kills); err != nil {
		return result, err
	}
	d.say("%s", result.summary(time.Since(d.started)))
	return result, result.verdict(p)
}

// instants draws when to kill, as amounts of work: one at random in each of as many equal parts.
// What then comes between the look at the database and the kill makes the instant.
func (p plan) instants() []int {
	all := p.Orders * workPerOrder
	part := float64(all*untilTheLastKill/tenths) / float64(p.Kills)
	instants := make([]int, p.Kills)
	for i := range instants {
		instants[i] = max(1, int(part*(float64(i)+rand.Float64()))) //nolint:gosec // any instant will do
	}
	return instants
}

// run starts and kills the shop until it has done its work.
func (d *demo) run(ctx context.Context) (err error) {
	if d.process, err = start(d.task); err != nil {
		return err
	}
	defer func() { d.process.kill() }()
	look, report := time.NewTicker(lookEvery), time.NewTicker(reportEvery)
	defer look.Stop()
	defer report.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.process.ended:
			return d.process.failure()
		case <-look.C:
			err = d.look(ctx)
		case <-report.C:
			err = d.report(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// look kills the shop and starts it again, if it is time.
func (d *demo) look(ctx context.Context) error {
	progress, err := d.books.progress(ctx)
	if err != nil {
		return err
	}
	if work := progress.work(); work > d.work {
		d.work, d.workedAt = work, time.Now()
	}
	if time.Since(d.workedAt) > patience {
		d.process.kill()
		return fmt.Errorf("the shop got no further for %s\n%s", patience, d.process.lastWords())
	}
	if d.kills == len(d.killAt) || d.work < d.killAt[d.kills] {
		return nil
	}
	if killed := d.process.kill(); !killed {
		return d.process.failure() // it ended before
	}
	d.kills++
	d.say("%4.0f s  killed the shop (SIGKILL), and started it again\n", time.Since(d.started).Seconds())
	d.process, err = start(d.task)
	return err
}

func (d *demo) report(ctx context.Context) error {
	progress, err := d.books.progress(ctx)
	if err != nil {
		return err
	}
	d.say("%4.0f s  %5d of %d orders placed  %5d paid  %5d confirmed  %d kills\n",
		time.Since(d.started).Seconds(), progress.orders, d.task.Plan.Orders, progress.payments, progress.confirmed, d.kills)
	return nil
}

// say prints. Whoever closes the output early misses the rest, and the counting goes on.
func (d *demo) say(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format, args...) }

func (d *demo) introduce() {
	d.say(`A shop of two modules, orders and payments, in one process with one SQLite file.
An order makes an event, the event makes a payment, the payment makes an event, and that confirms the order.
The shop is killed %d times. Besides, 1 handler in %d fails after it has written, and 1 event in %d is sent twice.

`, d.task.Plan.Kills, d.task.Plan.OneIn, d.task.Plan.OneIn)
}
