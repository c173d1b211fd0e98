package pgtail_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

func TestInspect_shows_who_reads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := pgtail.Config{DSN: w.DSN, Publication: w.publication()}
	status, err := pgtail.Inspect(t.Context(), w.Postbox(), config)
	require.NoError(t, err)
	require.False(t, status.Slot.Exists)
	require.Len(t, status.Findings, 1)
	require.Equal(t, tail.AboutReader, status.Findings[0].About)
	require.False(t, status.Findings[0].Problem, "forwarders poll")

	f := w.start(&broker{}, forwarder.Config{Tail: w.tail()})
	w.follows(f)
	status, err = pgtail.Inspect(t.Context(), w.Postbox(), config)
	require.NoError(t, err)
	require.Empty(t, status.Findings)
	require.True(t, status.Slot.Active)
	require.Positive(t, status.Slot.PID)
	require.Equal(t, "postgres", status.Slot.Role)
	require.NoError(t, pgtail.Check(t.Context(), w.Postbox(), config))
	f.stop(t)
}

// Several processes may set the log up at the same time, as when a service is deployed.
func TestSetup_by_several_processes_at_a_time(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, pgtail.Remove(t.Context(), w.Postbox(), w.publication()))
	const processes = 4
	ended := make(chan error, processes)
	for range processes {
		go func() { ended <- pgtail.Setup(t.Context(), w.Postbox(), w.publication()) }()
	}
	var all []error
	for range processes {
		all = append(all, <-ended)
	}
	require.NoError(t, errors.Join(all...))
	require.Equal(t, 4, w.tables())
}
