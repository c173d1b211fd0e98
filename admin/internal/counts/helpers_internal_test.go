package counts

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// limit is the cap in tests.
const limit = 10

type bench struct {
	*enginetest.Bench

	id int64
}

func newBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	b := &bench{Bench: enginetest.NewBench(t, database)}
	var err error
	b.id, err = b.Spool.Open(t.Context(), database.DB)
	require.NoError(t, err)
	return b
}

func (b *bench) exec(query string, args ...any) {
	b.T.Helper()
	b.Database.Exec(b.T, query, args...)
}

// ready stores messages, with keys of many lanes.
func (b *bench) ready(n int) {
	b.T.Helper()
	b.Append(b.Database.DB, enginetest.Drafts(n, func(i int) string { return fmt.Sprint(i) })...)
	b.exec("UPDATE postbox_messages SET available_at = created_at WHERE state = 0 AND available_at = 0")
}

// letters adds dead letters of the spool, or of an inbox, of which some are resolved. All died at
// one moment.
func (b *bench) letters(n, resolved int, consumer string) {
	b.T.Helper()
	for i := range n {
		args := []any{nil, consumer, dialect.OriginInbox, nil}
		if consumer == "" {
			args = []any{b.id, "", dialect.OriginSpool, nil}
		}
		if i < resolved {
			args[3] = 1
		}
		b.exec(`INSERT INTO postbox_dead_letters (origin, subject, error, spool, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts, resolved_at)
			VALUES (?, ?, 'no', ?, ?, 'orders', ?, ?, ?, 1, 2, 3, ?)`, args[2], []byte("s"), args[0], args[1], []byte("m"), []byte("p"), []byte("{}"), args[3])
	}
}

// done adds messages to the history, always three at one moment.
func (b *bench) done(from, n int) {
	b.T.Helper()
	for i := from; i < from+n; i++ {
		b.exec(`INSERT INTO postbox_history (id, spool, topic, message_id, payload, metadata, created_at, done_at, attempts)
			VALUES (?, ?, 'orders', ?, ?, ?, 1, ?, 1)`, i, b.id, []byte("m"), []byte("p"), []byte("{}"), 1000+i/3)
	}
}

// read returns the numbers of the spool.
func (b *bench) read() Numbers {
	b.T.Helper()
	numbers, err := NewReader(b.Database.DB, operatorsql.New(b.Statements), limit).Spools(b.T.Context(), []int64{b.id})
	require.NoError(b.T, err)
	return numbers[b.id]
}

func (b *bench) inboxes() []Inbox {
	b.T.Helper()
	inboxes, err := NewReader(b.Database.DB, operatorsql.New(b.Statements), limit).Inboxes(b.T.Context())
	require.NoError(b.T, err)
	return inboxes
}
