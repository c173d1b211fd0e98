package operate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Each search looks at a bounded number of messages, and the next one goes on behind the last of them, whether it matches or not.
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
		operator := operate.NewOperator(database.DB, b.Statements, nil, watermill.NopLogger{})

		for _, size := range []struct{ among, limit int }{{7, 100}, {7, 1}, {39, 2}, {40, 100}, {100, 100}} {
			filter := dialect.MessageFilter{States: [2]int{dialect.StateReady, dialect.StateRetrying}, Topic: "refunds", Limit: size.limit}
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
		filter := dialect.MessageFilter{States: [2]int{dialect.StateScheduled, dialect.StateScheduled}, Limit: 10}
		part, err := operator.Search(context.Background(), b.Spool.Name(), filter, 7)
		require.NoError(t, err)
		require.Equal(t, operate.Found{}, part, "there is no such message")
		_, err = operator.Search(context.Background(), "none", filter, 7)
		require.ErrorIs(t, err, operate.ErrNotFound)
	})
}
