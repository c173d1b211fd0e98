// Package idle lets a forwarder that reads the log wait for messages that do not come, beside users
// of the server who write much: into other tables of its database, and into another database. The
// log that the server keeps for it must not rise with what the others write.
package idle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
)

// Config says how long and how much.
type Config struct {
	Duration, Interval time.Duration
	// Rate is how many megabytes of rows the others write in a second.
	Rate float64
	// Checkpoints makes the server note at each look which transactions run. By itself it does so
	// every 15 seconds, and only then can it forget a part of the log. A run of some seconds needs
	// it.
	Checkpoints bool
	Out         io.Writer
}

// Validate returns all that is wrong with the configuration.
func (c Config) Validate() error {
	if c.Duration <= 0 || c.Interval <= 0 || c.Rate <= 0 {
		return errors.New("duration, interval and rate must be positive")
	}
	return nil
}

// ErrKept is what a run ends with whose log is kept for the forwarder.
var ErrKept = errors.New("the server keeps the log of others for a forwarder that has nothing to read")

// Run runs, prints a line an interval and the result, and returns an error unless all is well.
func Run(ctx context.Context, config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	const connections = 10
	where, err := place.OpenAt(ctx, place.LogVariable, connections)
	if err != nil {
		return err
	}
	err = run(ctx, config, where)
	return errors.Join(err, where.Close())
}

func run(ctx context.Context, config Config, where *place.Place) (err error) {
	f, err := startIdler(ctx, where)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	others, err := openOthers(ctx, where)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.close()) }()

	ctx, cancel := context.WithTimeout(ctx, config.Duration)
	defer cancel()
	working, within := errgroup.WithContext(ctx)
	for _, db := range others.databases {
		working.Go(func() error { return write(within, db, config.Rate/float64(len(others.databases))) })
	}
	watched := &series{}
	working.Go(func() error { return look(within, config, where.DB, watched) })
	if err := working.Wait(); err != nil {
		return err
	}
	return errors.Join(watched.result(config), f.works(context.WithoutCancel(ctx)))
}

// write fills a table, and empties it when it is large, until ctx ends.
func write(ctx context.Context, db *sql.DB, megabytes float64) error {
	const rows, large = 500, 100 // half a megabyte in a transaction
	pause := time.Duration(float64(time.Second) * rows / 1000 / megabytes)
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		statement := fmt.Sprintf("INSERT INTO busy SELECT n, repeat('x', 1000) FROM generate_series(1, %d) n", rows)
		if n%large == 0 {
			statement = "TRUNCATE busy"
		}
		if _, err := db.ExecContext(ctx, statement); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("write beside the outbox: %w", err)
		}
	}
}
