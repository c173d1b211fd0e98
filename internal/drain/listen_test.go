package drain_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Polling finds the messages, only later, and without a log line there would be no reason to see.
func TestListen_says_soon_and_once_that_it_has_no_connection(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // it takes connections, and answers nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	refusing, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, refusing.Close())
	for name, address := range map[string]net.Addr{"silent": silent.Addr(), "refusing": refusing.Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newUnmigratedBench(t, testdb.SQLite(t)) // which it does not use
			log := enginetest.NewJournal()
			drainer := drain.New(b.Database.DB, b.Spool, &recorder{}, config("one"), log)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				drainer.Listen(ctx, "postgres://user:secret@"+address.String()+"/shop?sslmode=disable")
			}()
			b.Eventually(func() bool { return len(log.At(watermill.ErrorLogLevel)) > 0 }, "it is said")
			if name == "refusing" {
				b.Eventually(func() bool { return log.Said("still cannot LISTEN") > 1 }, "it goes on trying")
			}
			lines := log.At(watermill.ErrorLogLevel)
			require.Len(t, lines, 1)
			require.Contains(t, lines[0].Msg, "ListenDSN")
			require.NotContains(t, lines[0].Err.Error(), "secret")
			cancel()
			select {
			case <-ended: // also while lib/pq waits for an answer
			case <-time.After(5 * time.Second):
				require.FailNow(t, "the end waits for the host")
			}
		})
	}
}
