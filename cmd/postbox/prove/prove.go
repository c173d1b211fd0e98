// Package prove tortures Postbox on the server of its user. It works in a schema or in tables of
// its own, starts producers, forwarders, inboxes and queues in processes of the program that calls
// it, and hosts a broker. It kills the processes, cuts their connections and fails the broker. Then
// it counts with SQL whether each message that was committed had its effects once and in order. See
// docs/prove.md.
package prove

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Options say what is proven, and on which server.
type Options struct {
	// Open opens a database. Required.
	Open func(dsn string) (*sql.DB, error)
	// Dialect is the kind of database. Required.
	Dialect postbox.Dialect
	// DSN is the address of the database. For SQLite it is not used: see File.
	DSN string
	// File is a file of SQLite. A folder beside it is used, and the file is not opened. Address
	// returns the address of a file.
	File    string
	Address func(file string) string
	// PoolerDSN is the address of the same database through a pooler in transaction mode, or on
	// another node of Galera. Empty for none.
	PoolerDSN string
	// Duration is how long producers write and faults happen.
	Duration time.Duration
	// Seed chooses the faults.
	Seed uint64
	// Program returns a command that runs [Process] with its standard input and output. Required.
	Program func() (*exec.Cmd, error)
	// Say gets sentences about the progress. Required.
	Say func(text string)
	// Patience is how long the run waits for messages while none is handled. Defaults to a minute.
	Patience time.Duration
}

// errRefused begins the errors about a server that a run would disturb, or on which it cannot work.
var errRefused = errors.New("nothing was tried")

// ErrLeft is the error of a run that could not remove all that it had made.
var ErrLeft = errors.New("the next run removes it")

func refusef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errRefused}, args...)...)
}

// cleanUpPatience is how long the end of a run may take to remove what the run has made.
const cleanUpPatience = time.Minute

// Run tries to make Postbox break its promises until the duration is over, and reports what became
// of the messages. It leaves nothing behind, also when ctx ends or an error is returned, and
// removes what runs that were killed have left.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	r := &run{Options: o, counts: map[string]int{}, dice: rand.New(rand.NewPCG(o.Seed, 0))} //nolint:gosec // faults need no secret dice
	if r.place, err = open(ctx, o); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.place.close()) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpPatience)
		defer cancel()
		if dropErr := r.place.drop(ctx); dropErr != nil {
			err = errors.Join(err, fmt.Errorf("remove %s: %w: %w", r.place, dropErr, ErrLeft))
		}
	}()
	if err := r.look(ctx); err != nil {
		return nil, err
	}
	if err := r.place.sweep(ctx, o.Say); err != nil {
		return nil, err
	}
	if err := r.place.make(ctx); errors.Is(err, errRefused) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("make the tables of the run: %w", err)
	}
	defer r.place.keepAlive(ctx)()
	if err := r.samePooler(ctx); err != nil {
		return nil, err
	}
	return r.torture(ctx)
}

// torture runs the processes, and judges when they have ended.
func (r *run) torture(ctx context.Context) (*Report, error) {
	var err error
	if r.broker, err = newBroker(rand.New(rand.NewPCG(r.Seed, 1))); err != nil { //nolint:gosec // as above
		return nil, err
	}
	defer r.broker.close()
	r.Say(fmt.Sprintf("In %s on %s, for %s, with seed %d.", r.place, r.server.Version, r.Duration, r.Seed))
	endAll := r.start(ctx)
	defer endAll()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	producing, cancel := context.WithTimeout(ctx, r.Duration)
	reported := r.reportProgress(ctx)
	r.faults(producing)
	cancel()
	if ctx.Err() == nil {
		r.calm()
		r.end(producers)
		r.Say("No more faults. Waiting for the messages that are under way.")
	}
	caughtUp, err := r.catchUp(ctx)
	reported()
	if err = errors.Join(err, ctx.Err(), r.failed()); err != nil {
		return nil, err
	}
	r.end("")
	return r.judge(ctx, caughtUp)
}
