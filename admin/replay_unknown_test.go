package admin_test

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// secondPart is the commit of the second part of a replay: the first commit is that of the row in
// the audit log alone.
const secondPart = 3

// behindGate returns an operator whose database is behind a gate, at which a function takes the
// place of the commit of the second part.
func (b *bench) behindGate(instead func(gate *testdb.Gate, commit func() error) error) (*admin.Admin, *testdb.Gate) {
	b.Helper()
	db, gate := b.database.OpenGated(b.T)
	commits := 0
	gate.AtCommit(func(commit func() error) error {
		if commits++; commits == secondPart {
			return instead(gate, commit)
		}
		return commit()
	})
	a, err := admin.New(b.database.On(db), admin.Config{Outbox: b.outbox.Name()}, nil)
	require.NoError(b, err)
	return a, gate
}

// The connection is lost in a commit. The replay finds out what became of the transaction, and
// copies each message once.
func TestReplay_G4_copies_messages_once_although_the_answer_to_a_commit_is_lost(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, takesEffect := range map[string]bool{"committed": true, "rolled back": false} {
			t.Run(name, func(t *testing.T) {
				b := newBench(t, database)
				const n = 250
				b.history(b.outbox, n, nil)
				operator, _ := b.behindGate(func(_ *testdb.Gate, commit func() error) error {
					if takesEffect {
						require.NoError(t, commit())
					}
					return driver.ErrBadConn
				})
				var seen []int
				did, err := operator.Replay(t.Context(), admin.Filter{Target: b.target, All: true}, admin.Again{NewIDs: true}, func(p admin.Progress) {
					seen = append(seen, p.Done)
				})
				require.NoError(t, err)
				require.Equal(t, n, did.Done)
				require.Equal(t, []int{100, 200, n}, seen)
				require.Equal(t, n, b.pending())
				entries, _, err := b.admin.Audit(t.Context(), admin.Filter{Action: "replay"})
				require.NoError(t, err)
				require.Equal(t, []any{n, "up to cursor " + did.Cursor}, []any{entries[0].Affected, entries[0].Note})
				database.Exec(t, "DELETE FROM postbox_messages")
				database.Exec(t, "DELETE FROM postbox_history")
			})
		}
	})
}

// The database is away after that, so nothing tells what became of the transaction. The replay
// names no cursor with which its messages would be copied again.
func TestReplay_G4_names_no_cursor_if_it_is_unknown_what_was_committed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const n = 250
		b.history(b.outbox, n, nil)
		ctx, stop := context.WithCancel(t.Context())
		operator, gate := b.behindGate(func(gate *testdb.Gate, commit func() error) error {
			require.NoError(t, commit())
			gate.Shut()
			stop() // it asks for a few seconds more
			return driver.ErrBadConn
		})
		did, err := operator.Replay(ctx, admin.Filter{Target: b.target, All: true}, admin.Again{NewIDs: true})
		require.ErrorIs(t, err, postbox.ErrCommitUnknown)
		require.Equal(t, admin.Progress{Done: 100}, did)

		gate.Open()
		entries, _, err := operator.Audit(t.Context(), admin.Filter{Action: "replay"})
		require.NoError(t, err)
		cursor, found := strings.CutPrefix(entries[0].Note, "up to cursor ")
		require.True(t, found, entries[0].Note)
		did, err = operator.Replay(t.Context(), admin.Filter{Target: b.target, All: true, After: cursor}, admin.Again{NewIDs: true})
		require.NoError(t, err)
		require.Equal(t, n-200, did.Done)
		require.Equal(t, n, b.pending())
	})
}
