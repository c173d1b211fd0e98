package admin

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Each search looks at a bounded number of messages, and the next one goes on behind the last of
// them, whether it matches or not.
func TestSearch_finds_each_message_once_in_bounded_parts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		drafts := enginetest.Drafts(40, func(i int) string { return fmt.Sprint(i) })
		want := []string{}
		for i := range drafts {
			if i%8 == 0 {
				drafts[i].Topic = "refunds"
				want = append(want, drafts[i].MessageID)
			}
		}
		b.Append(database.DB, drafts...)
		database.Exec(t, "UPDATE postbox_messages SET state = 2 WHERE id % 4 = 1")
		database.MoveWaiting(t)
		operator := newOperator(database.DB, operatorsql.New(b.Statements), nil, watermill.NopLogger{})

		for _, size := range []struct{ among, limit int }{{7, 100}, {7, 1}, {39, 2}, {40, 100}, {100, 100}} {
			filter := operatorsql.MessageFilter{States: [2]int{dialect.StateReady, dialect.StateRetrying}, Topic: "refunds", Limit: size.limit}
			var found []string
			for searches := 0; ; searches++ {
				part, err := operator.Search(context.Background(), b.Spool.Name(), filter, size.among)
				require.NoError(t, err)
				require.LessOrEqual(t, part.Looked, size.among)
				require.LessOrEqual(t, len(part.Messages), size.limit)
				for _, m := range part.Messages {
					require.Equal(t, "refunds", m.Topic)
					require.Positive(t, m.Size)
					found = append(found, m.MessageID)
				}
				if part.Next == nil {
					break
				}
				require.Less(t, searches, 40, "it does not end")
				filter.After = *part.Next
			}
			require.ElementsMatch(t, want, found, "%+v", size)
		}
		filter := operatorsql.MessageFilter{States: [2]int{dialect.StateScheduled, dialect.StateScheduled}, Limit: 10}
		part, err := operator.Search(context.Background(), b.Spool.Name(), filter, 7)
		require.NoError(t, err)
		require.Equal(t, foundMessages{}, part, "there is no such message")
		_, err = operator.Search(context.Background(), "none", filter, 7)
		require.ErrorIs(t, err, ErrNotFound)
	})
}

// The same holds for dead letters and for the audit log, of which the latest rows come first.
func TestSearch_of_dead_letters_and_of_the_audit_log_goes_on_behind_what_it_has_looked_at(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		for i := range 40 {
			word := "often"
			if i%8 == 0 {
				word = "seldom"
			}
			database.Exec(t, `INSERT INTO postbox_dead_letters (origin, subject, error, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts)
				VALUES (1, ?, 'no', 'billing', ?, ?, ?, ?, 1, 2, 3)`, []byte("s"), word, []byte("m"), []byte("p"), []byte("{}"))
			database.Exec(t, `INSERT INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)
				VALUES (?, 1, ?, 'requeue', '', '', '', 1, '')`, fmt.Sprint(i), word)
		}
		operator := newOperator(database.DB, operatorsql.New(b.Statements), nil, watermill.NopLogger{})
		letters := newLetters(database.DB, operatorsql.New(b.Statements), nil, "outbox", watermill.NopLogger{})
		for _, size := range []struct{ among, limit int }{{7, 100}, {7, 1}, {39, 2}, {40, 100}, {100, 100}} {
			filter := operatorsql.DeadLetterFilter{Topic: "seldom", Limit: size.limit}
			found := 0
			for searches := 0; ; searches++ {
				part, err := letters.Search(t.Context(), filter, size.among)
				require.NoError(t, err)
				require.LessOrEqual(t, part.Looked, size.among)
				require.LessOrEqual(t, len(part.Letters), size.limit)
				for _, l := range part.Letters {
					require.Equal(t, "seldom", l.Topic)
					require.Greater(t, l.ID, filter.After)
				}
				found += len(part.Letters)
				if filter.After = part.Next; filter.After == 0 {
					break
				}
				require.Less(t, searches, 40, "it does not end")
			}
			require.Equal(t, 5, found, "%+v", size)

			backwards := operatorsql.DeadLetterFilter{Topic: "seldom", NewestFirst: true, Limit: size.limit}
			var ids []int64
			for searches := 0; ; searches++ {
				part, err := letters.Search(t.Context(), backwards, size.among)
				require.NoError(t, err)
				require.LessOrEqual(t, part.Looked, size.among)
				require.LessOrEqual(t, len(part.Letters), size.limit)
				for _, l := range part.Letters {
					ids = append(ids, l.ID)
				}
				if backwards.UpTo = part.Next - 1; backwards.UpTo <= 0 {
					break
				}
				require.Less(t, searches, 40, "it does not end")
			}
			require.Equal(t, []int64{33, 25, 17, 9, 1}, ids, "%+v", size)

			acts := operatorsql.AuditFilter{Actor: "seldom", Limit: size.limit}
			found = 0
			for searches := 0; ; searches++ {
				entries, next, err := operator.SearchAudit(t.Context(), acts, size.among)
				require.NoError(t, err)
				require.LessOrEqual(t, len(entries), size.limit)
				for _, e := range entries {
					require.Equal(t, "seldom", e.Actor)
				}
				found += len(entries)
				if acts.Before = next; acts.Before == 0 {
					break
				}
				require.Less(t, searches, 40, "it does not end")
			}
			require.Equal(t, 5, found, "%+v", size)
		}
		none, err := letters.Search(t.Context(), operatorsql.DeadLetterFilter{After: 1 << 40, Limit: 7}, 7)
		require.NoError(t, err)
		require.Zero(t, none)
	})
}
