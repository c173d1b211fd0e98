package queue

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

var (
	again    = spool.Outcome{Verdict: spool.Again}
	postpone = spool.Outcome{Verdict: spool.Postpone}
)

// locking is a batch of messages 0, 1, 2, ... with these keys, and a queue.
func locking(keys ...int64) (*progress, *queue) {
	batch := make([]*spool.Message, len(keys))
	for i, key := range keys {
		batch[i] = &spool.Message{HasKey: key > 0, Key: strconv.FormatInt(key, 10), KeyHash: key}
		batch[i].Ref.ID = int64(i)
	}
	return newProgress(batch), &queue{name: "q", logger: watermill.NopLogger{}, circuits: circuit.New(circuit.Config{}, func() {})}
}

// verdicts returns the outcomes without their errors.
func (p *progress) verdicts() []spool.Outcome {
	list := make([]spool.Outcome, len(p.outcomes))
	for i, outcome := range p.outcomes {
		list[i] = spool.Outcome{Verdict: outcome.Verdict}
	}
	return list
}

func TestProgress_G3_only_messages_behind_a_locked_one_of_their_key_wait(t *testing.T) {
	t.Parallel()
	p, q := locking(1, 1, 2, 1, 0, 0)
	none := spool.Outcome{}
	rest, others := p.setAside(q, p.indices(), fmt.Errorf("wrapped: %w", &lockedError{ids: map[int64]bool{1: true, 4: true}}))
	require.True(t, others)
	require.Equal(t, []int{0, 2, 5}, rest)
	require.Equal(t, []spool.Outcome{none, again, none, postpone, again, none}, p.verdicts())
	require.ErrorIs(t, p.outcomes[1].Err, spool.ErrRowLocked)
}

// No row is locked any more, and each time the transaction is given up.
func TestProgress_G7_a_batch_that_is_refused_without_a_locked_row_is_not_tried_for_ever(t *testing.T) {
	t.Parallel()
	p, q := locking(1, 2, 3)
	for range mostRefused {
		rest, others := p.setAside(q, p.indices(), spool.ErrRowLocked)
		require.True(t, others)
		require.Equal(t, p.indices(), rest)
	}
	_, others := p.setAside(q, p.indices(), spool.ErrRowLocked)
	require.False(t, others)
}

func TestProgress_only_locked_rows_are_set_aside(t *testing.T) {
	t.Parallel()
	p, q := locking(1, 2, 3)
	_, others := p.setAside(q, p.indices(), errors.New("another one"))
	require.False(t, others)
	_, others = p.setAside(q, []int{1}, &lockedError{ids: map[int64]bool{1: true}})
	require.False(t, others, "there is none but it")
}
