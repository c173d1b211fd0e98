// Package idle lets a forwarder with a Tail wait for messages that do not come, beside users of the server who write
// much: into other tables of its database, and into another database. The log that the server keeps for the
// forwarder must not rise with what they write.
package idle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
	"github.com/postbox-go/watermill-postbox/proof/endurance/trend"
)

// Config says how long and how much.
type Config struct {
	Duration, Interval time.Duration
	// Rate is how many megabytes of rows the others write in a second.
	Rate float64
	// Checkpoints makes the server note at each look which transactions run. By itself it does so every 15 seconds, and
	// only then can it forget a part of the log. A run of some seconds needs it.
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
	f, err := startForwarder(ctx, where)
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
	var watched series
	working.Go(func() error { return watched.look(within, config, where.DB) })
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

// series is what the server has written and keeps, in the order of the looks.
type series struct {
	written, retained, moves []float64
	slots                    int // looks that found a slot
	position                 string
}

// look looks at the log in each interval.
func (s *series) look(ctx context.Context, config Config, db *sql.DB) error {
	var start string
	if err := db.QueryRowContext(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&start); err != nil {
		return err
	}
	ticker := time.NewTicker(config.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := s.add(ctx, config, db, start)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at the log: %w", err)
		}
	}
}

func (s *series) add(ctx context.Context, config Config, db *sql.DB, start string) error {
	if config.Checkpoints {
		if _, err := db.ExecContext(ctx, "CHECKPOINT"); err != nil {
			return err
		}
	}
	var written, retained float64
	var found int
	var position string
	err := db.QueryRowContext(ctx, `
		SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1::pg_lsn), COUNT(*),
		       COALESCE(MAX(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0), COALESCE(MIN(restart_lsn)::text, '')
		FROM pg_replication_slots WHERE slot_name LIKE '%\_' || 'postbox_messages'::regclass::oid::text`, start).
		Scan(&written, &found, &retained, &position)
	if err != nil {
		return err
	}
	move := 0.0
	if n := len(s.moves); n > 0 {
		move = s.moves[n-1]
	}
	if position != s.position {
		s.position = position
		move++
	}
	s.written, s.retained, s.moves = append(s.written, written), append(s.retained, retained), append(s.moves, move)
	s.slots += min(found, 1)
	fmt.Fprintf(config.Out, "written %6.1f MB, kept for the forwarder %5.1f MB\n", written/1e6, retained/1e6)
	return nil
}

// mostShare is the largest part of what was written that may be kept at the best look of the second half. A transaction
// that is open for a moment, or a confirmation that is a second old, keeps more at other looks.
const mostShare = 0.5

// result prints what the run has shown.
func (s *series) result(config Config) error {
	if len(s.written) == 0 {
		return errors.New("the run was too short for a look")
	}
	last, half := s.written[len(s.written)-1], s.retained[len(s.retained)/2:]
	least, most := slices.Min(half), slices.Max(half)
	verdict := trend.Teeth(s.retained, s.moves, trend.Tolerance{Share: 0.5, Least: 16e6}) // a segment of the log
	names := map[trend.Verdict]string{trend.Steady: "no", trend.Rising: "yes", trend.Unjudged: "too_short"}
	fmt.Fprintf(config.Out, "RESULT idle minutes=%.1f written_mb=%.0f least_kept_mb=%.1f most_kept_mb=%.1f moved=%.0f looks=%d looks_with_slot=%d rising=%s\n",
		config.Duration.Minutes(), last/1e6, least/1e6, most/1e6, s.moves[len(s.moves)-1], len(s.written), s.slots, names[verdict])
	if verdict == trend.Rising || least > mostShare*last {
		return ErrKept
	}
	if s.slots < len(s.written) {
		return errors.New("there was not always a slot, so the run shows nothing")
	}
	return nil
}
