package cleanup

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A statement that was cut off may reach the server later, after the one that hands the task back.
func TestCleaner_F24_stopping_lets_the_running_statement_end(t *testing.T) {
	t.Parallel()
	cleaner := &Cleaner{logger: watermill.NopLogger{}, fit: true}
	cleaner.config.setDefaults()
	started, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	live, stop := context.WithCancel(t.Context())
	go cleaner.turn(live, &task{
		held: true, holdAt: time.Now().Add(time.Hour),
		work: func(ctx context.Context, _ *Cleaner, _ *task) (int, time.Duration, error) {
			close(started)
			<-goOn
			ended <- ctx.Err()
			return 0, 0, nil
		},
	})
	<-started
	stop()
	close(goOn)
	require.NoError(t, <-ended)
}

func TestCleaner_G12_a_statement_that_hangs_is_given_up_after_a_while(t *testing.T) {
	t.Parallel()
	live, stop := context.WithCancel(t.Context())
	stop()
	ctx, cancel := finishing(live)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-time.After(4 * leaveTimeout):
		require.Fail(t, "it would hang for as long as a running cleaner's")
	}
}

// Each step may wait for a database that does not answer, and the stop waits for all of them.
func TestCleaner_G12_begins_no_step_after_it_was_told_to_stop(t *testing.T) {
	t.Parallel()
	cleaner := &Cleaner{logger: watermill.NopLogger{}, fit: true}
	cleaner.config.setDefaults()
	live, stop := context.WithCancel(t.Context())
	defer stop()
	begun := 0
	for range 3 {
		cleaner.tasks = append(cleaner.tasks, &task{
			held: true, holdAt: time.Now().Add(time.Hour),
			work: func(context.Context, *Cleaner, *task) (int, time.Duration, error) {
				begun++
				stop()
				return 0, 0, nil
			},
		})
	}
	cleaner.Run(live)
	require.Equal(t, 1, begun)
}

// Operators may let rows be kept for a shorter time, also those that come later. A process without
// such rows does not know that time.
func TestCleaner_looks_soon_for_rows_whose_time_operators_change(t *testing.T) {
	t.Parallel()
	cleaner := New(nil, &dialect.Statements{}, "cleaner", Config{History: true, DeadLetters: 365 * 24 * time.Hour}, watermill.NopLogger{})
	require.Len(t, cleaner.tasks, 2)
	for _, task := range cleaner.tasks {
		require.LessOrEqual(t, task.interval, 5*time.Minute, task.name)
	}
}
