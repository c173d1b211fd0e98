package clusters

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRun_refuses_what_it_does_not_know(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, Run(t.Context(), Config{}), "positive")
	require.ErrorContains(t, Run(t.Context(), Config{Duration: time.Second, Only: "pigeons"}), `"pigeons"`)
	for _, name := range names {
		require.Contains(t, runners, name)
	}
	require.Len(t, runners, len(names))
}

func TestAwait_ends_with_the_answer_the_limit_or_the_context(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, began := 0, time.Now()
		yesAtTheThird := func() bool { asked++; return asked == 3 }
		require.NoError(t, await(t.Context(), time.Minute, "it", yesAtTheThird))
		require.Equal(t, 2*pollEvery, time.Since(began))

		never := func() bool { return false }
		err := await(t.Context(), time.Minute, "a miracle", never)
		require.ErrorContains(t, err, "a miracle")
		require.ErrorIs(t, err, context.DeadlineExceeded)

		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, await(ended, time.Minute, "it", never), context.Canceled)
		require.ErrorIs(t, pause(ended, time.Minute), context.Canceled)
	})
}
