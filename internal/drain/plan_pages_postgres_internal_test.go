package drain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A plan that is made while the table has no page reads all of it, and is kept while it grows.
// TRUNCATE, VACUUM FULL and a restored dump take away the pages that the migration has given it.
// Compared with the place of each message, a thousand of 60,000 took 0.7 s.
func TestPlans_of_a_removal_without_pages_look_each_message_up_on_postgres(t *testing.T) {
	t.Parallel()
	for name, takeAway := range map[string]string{
		"truncated": "TRUNCATE postbox_messages, postbox_waiting", "vacuumed in full": "VACUUM FULL postbox_messages, postbox_waiting",
	} {
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				w := newPlannedTables(t)
				w.exec(takeAway)
				w.run("SET plan_cache_mode = " + mode)
				removals := func(ready, retrying []dialect.Ref) []planned {
					mixed := append(append([]dialect.Ref{}, ready[:plannedRefs/2]...), retrying[:plannedRefs/2]...)
					return []planned{
						{"remove", w.own.Statements.Remove(w.spool, ready), plannedRefs, true, 0},
						{"remove what waited", w.own.Statements.Remove(w.spool, mixed), plannedRefs, true, 0},
					}
				}
				nothing, waited := make([]dialect.Ref, plannedRefs), make([]dialect.Ref, plannedRefs)
				for i := range waited {
					waited[i].State = dialect.StateRetrying
				}
				first := removals(nothing, waited)
				w.run("PREPARE p AS " + first[0].query.Text)
				for _, s := range first { // it makes the plans within the function
					w.explain("ANALYZE, FORMAT JSON", "p", s)
				}
				w.fill(plannedReady, plannedWaiting)
				for _, s := range removals(w.refs("postbox_messages", dialect.StateReady), w.refs("postbox_waiting", dialect.StateRetrying)) {
					require.LessOrEqual(t, w.measure("p", s).buffers(), s.most(), s.name)
				}
			})
		}
	}
}
