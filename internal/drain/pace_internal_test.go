package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// paced is a drainer whose last look took as long.
func paced(kind dialect.Kind, took time.Duration) *Drainer {
	shared := &core{
		spool:  &spool.Spool{Statements: &dialect.Statements{Kind: kind}},
		config: Config{Times: Times{PollMin: 5 * time.Millisecond, PollMax: time.Second}}, pace: pace{took: took},
	}
	log := &tailing{core: shared}
	return &Drainer{core: shared, tailing: log, reader: &reader{core: shared, tailing: log}}
}

func TestPace_requested_polls_take_a_third_of_the_time(t *testing.T) {
	t.Parallel()
	d := paced(dialect.PostgreSQL, 10*time.Millisecond)
	now := time.Now()
	end, looks := now.Add(3*time.Second/2), 0
	for now.Before(end) {
		started := now
		now = now.Add(10 * time.Millisecond)
		d.reader.plan(true, true, started, now)
		d.reader.wakeSoon() // by a commit during the look
		now = d.pace.at
		looks++
	}
	require.Equal(t, 51, looks, "one of them in advance")
}

func TestPace_polls_at_once_after_a_pause(t *testing.T) {
	t.Parallel()
	d := paced(dialect.PostgreSQL, time.Minute)
	d.pace.pause = 400 * time.Millisecond
	now := time.Now()
	d.reader.plan(true, false, now, now.Add(time.Millisecond))
	require.Equal(t, now.Add(801*time.Millisecond), d.pace.at, "it found nothing")
	d.reader.wakeSoon()
	require.Equal(t, now.Add(time.Millisecond), d.pace.at)
	require.Equal(t, d.config.PollMin, d.pace.pause)

	for range 3 {
		d.reader.plan(true, true, now, now.Add(time.Minute)) // the database hardly answers
	}
	d.reader.wakeSoon()
	require.Equal(t, now.Add(time.Minute+d.config.PollMax), d.pace.at, "that is the most")
}

func TestPace_one_slow_poll_causes_no_long_pause(t *testing.T) {
	t.Parallel()
	d := paced(dialect.PostgreSQL, time.Millisecond)
	now := time.Now()
	d.reader.plan(true, false, now, now.Add(100*time.Millisecond))
	d.reader.wakeSoon()
	require.Equal(t, now.Add(100*time.Millisecond), d.pace.at)
	now = d.pace.at
	for range 2 {
		d.reader.plan(true, false, now, now.Add(time.Millisecond))
		d.reader.wakeSoon()
	}
	require.Equal(t, now.Add(3*time.Millisecond), d.pace.at)
}

func TestPace_polls_are_rarer_with_one_writer(t *testing.T) {
	t.Parallel()
	d := paced(dialect.SQLite, time.Millisecond)
	now := time.Now()
	d.reader.plan(true, true, now, now.Add(time.Millisecond))
	d.reader.plan(true, true, now.Add(time.Millisecond), now.Add(2*time.Millisecond))
	d.reader.wakeSoon()
	require.Equal(t, now.Add(11*time.Millisecond), d.pace.at)
}
