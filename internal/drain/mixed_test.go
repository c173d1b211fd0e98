package drain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Messages that are ready and messages that wait come in one statement, or one commit: each is
// there once, and the ready ones do not wait for the others.
func TestSpool_G1_ready_and_delayed_messages_come_together(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		mixed := drafts(8, func(int) string { return "key" })
		var ready, all []string
		for i := range mixed {
			all = append(all, mixed[i].MessageID)
			if i%2 == 0 {
				ready = append(ready, mixed[i].MessageID)
			} else {
				mixed[i].Delay = time.Hour
			}
		}
		ingest := func(drafts []spool.Draft) (known map[string]bool) {
			arrivals := make([]spool.Arrival, len(drafts))
			for i, d := range drafts {
				var err error
				arrivals[i], err = spool.NewArrival(fmt.Appendf(nil, "claim of %s", d.MessageID), d)
				require.NoError(t, err)
			}
			known, err := b.Spool.Ingest(t.Context(), database.DB, nil, arrivals)
			require.NoError(t, err)
			return known
		}
		for name, store := range map[string]func(){
			"append": func() { b.Append(database.DB, mixed...) },
			"ingest": func() {
				require.Empty(t, ingest(mixed[:2]))
				require.Equal(t, map[string]bool{"claim of " + all[0]: true, "claim of " + all[1]: true}, ingest(mixed))
			},
		} {
			store()
			require.Equal(t, len(all), b.Pending(), name)
			handler := &recorder{}
			drainer := b.start(database.DB, handler, config(name))
			b.Eventually(func() bool { return b.Pending() == len(all)-len(ready) }, "the ready ones are settled")
			require.Equal(t, ready, handler.ids(), name)
			database.Exec(t, "UPDATE postbox_messages SET available_at = 0")
			b.Eventually(func() bool { return b.Pending() == 0 }, "the others are settled")
			drainer.stop(t)
			require.ElementsMatch(t, all, handler.ids(), name)
		}
	})
}
