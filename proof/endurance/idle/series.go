package idle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/endurance/trend"
)

// series is what the server has written, and what it keeps for the forwarder, in the order of the
// looks.
type series struct {
	written, retained, moves []float64
	slots                    int // looks that found a slot
	position                 string
}

// look looks at the log in each interval.
func look(ctx context.Context, config Config, db *sql.DB, s *series) error {
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
		err := s.look(ctx, config, db, start)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at the log: %w", err)
		}
	}
}

func (s *series) look(ctx context.Context, config Config, db *sql.DB, start string) error {
	if config.Checkpoints {
		if _, err := db.ExecContext(ctx, "CHECKPOINT"); err != nil {
			return err
		}
	}
	if err := s.add(ctx, db, start); err != nil {
		return err
	}
	last := len(s.written) - 1
	fmt.Fprintf(config.Out, "written %6.1f MB, kept for the forwarder %5.1f MB\n", s.written[last]/1e6, s.retained[last]/1e6)
	return nil
}

func (s *series) add(ctx context.Context, db *sql.DB, start string) error {
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
	return nil
}

// mostShare is the largest part of what was written that may be kept at the best look of the second
// half. A transaction that is open for a moment, or a confirmation that is a second old, keeps more
// at other looks.
const mostShare = 0.5

// step is what is kept in any case: the server keeps its log in files of 16 MiB.
const step = 2 * 16 << 20

// result prints what the run has shown.
func (s *series) result(config Config) error {
	if len(s.written) == 0 {
		return errors.New("the run was too short for a look")
	}
	last, half := s.written[len(s.written)-1], s.retained[len(s.retained)/2:]
	least, most := slices.Min(half), slices.Max(half)
	verdict := trend.Teeth(s.retained, s.moves, trend.Tolerance{Share: 0.5, Least: step})
	names := map[trend.Verdict]string{trend.Steady: "no", trend.Rising: "yes", trend.Unjudged: "too_short"}
	fmt.Fprintf(config.Out, "RESULT idle minutes=%.1f written_mb=%.0f least_kept_mb=%.1f most_kept_mb=%.1f moved=%.0f looks=%d looks_with_slot=%d rising=%s\n",
		config.Duration.Minutes(), last/1e6, least/1e6, most/1e6, s.moves[len(s.moves)-1], len(s.written), s.slots, names[verdict])
	if verdict == trend.Rising || least > max(mostShare*last, step) {
		return ErrKept
	}
	if s.slots < len(s.written) {
		return errors.New("there was not always a slot, so the run shows nothing")
	}
	return nil
}
