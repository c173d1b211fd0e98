package drain_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The rows were copied by logical replication, and the values of the sequences were not.
func TestCheckSequences_names_what_mends_a_sequence_behind_its_rows(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	b.Append(b.Database.DB, draft("one", ""), draft("two", ""))
	require.NoError(t, b.Statements.CheckSequences(t.Context(), b.Database.DB))
	more := make([]spool.Draft, 3000)
	for i := range more {
		more[i] = draft(strconv.Itoa(i), "")
	}
	b.Append(b.Database.DB, more...)
	b.Database.Exec(t, "ANALYZE")
	require.Less(t, enginetest.Reads(t, b.Database, dialect.Query{Text: b.Statements.Behind}), 300, "G8: however many messages wait")
	highest := b.Database.Count(t, "SELECT max(id) FROM postbox_messages")
	b.Database.Exec(t, "SELECT setval('postbox_messages_id_seq', 1, false)")
	err := b.Statements.CheckSequences(t.Context(), b.Database.DB)
	require.ErrorIs(t, err, dialect.ErrBehind)
	require.ErrorContains(t, err, "SELECT setval('postbox_messages_id_seq', "+strconv.Itoa(highest)+")")
	b.Database.Exec(t, "SELECT setval('postbox_messages_id_seq', "+strconv.Itoa(highest)+")")
	require.NoError(t, b.Statements.CheckSequences(t.Context(), b.Database.DB))
}
