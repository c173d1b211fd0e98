package admin_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/unique"
)

// editor is an operator who may edit.
func (b *bench) editor() *admin.Admin {
	b.Helper()
	a, err := admin.New(b.database.Postbox(), admin.Config{Outbox: b.outbox.Name(), Actor: "ada@office", AllowEdit: true}, nil)
	require.NoError(b, err)
	return a
}

// pendingMessage reads the only pending message.
func (b *bench) pendingMessage() *admin.Message {
	b.Helper()
	messages := b.messages(admin.Filter{})
	require.Len(b, messages, 1)
	m, err := b.admin.Message(b.Context(), admin.Filter{Target: b.target, ID: messages[0].ID})
	require.NoError(b, err)
	return m
}

// Payload and metadata are replaced alone or together, and keep every byte.
func TestEdit_replaces_payload_and_metadata(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		for name, test := range map[string]struct {
			edit     admin.Again
			payload  string
			metadata message.Metadata
		}{
			"payload":  {admin.Again{Payload: message.Payload("new\x00\xff")}, "new\x00\xff", message.Metadata{"about": "payload", "bytes": "\x00\xff"}},
			"metadata": {admin.Again{Metadata: message.Metadata{"\xff": "\x00\xfe"}}, "payload of metadata", message.Metadata{"\xff": "\x00\xfe"}},
			"both":     {admin.Again{Payload: message.Payload{}, Metadata: message.Metadata{}}, "", message.Metadata{}},
		} {
			b.append(draft(name, "orders", "key"))
			b.bury()
			letter := b.only(admin.Filter{})
			require.NoError(t, errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: letter.ID}, test.edit)))
			m := b.pendingMessage()
			test.metadata["postbox_edited_from"] = fmt.Sprint(letter.ID)
			require.Equal(t, test.payload, string(m.Payload), name)
			require.Equal(t, test.metadata, m.Metadata, name)
			require.Equal(t, []any{name, "orders", "key", 0}, []any{m.MessageID, m.Topic, m.Key, m.Attempts})

			kept, err := b.admin.DeadLetter(t.Context(), letter.ID)
			require.NoError(t, err)
			require.Equal(t, "payload of "+name, string(kept.Payload), "the letter keeps the first version")
			require.Equal(t, "edited and requeued by ada@office", kept.Resolution)
			h, stop := b.drain(func(*spool.Message) error { return nil })
			b.eventually(func() bool { return h.counts()[name] == 1 }, "it is handled")
			stop()
		}
		require.Contains(t, strings.Join(b.acts(admin.Filter{Action: "edit"}), "\n"), "1 new payload of 0 bytes, new metadata with 0 values")
	})
}

func TestEdit_G9_one_of_many_operators_wins(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", "key"))
		b.bury()
		letter := b.only(admin.Filter{})
		const operators = 8
		errs := make([]error, operators)
		var all sync.WaitGroup
		for i := range operators {
			editor := b.editor()
			all.Go(func() {
				errs[i] = errorOf(editor.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{Payload: message.Payload(fmt.Sprint("version ", i))}))
			})
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			if err == nil {
				require.Equal(t, -1, winner)
				winner = i
				continue
			}
			require.ErrorIs(t, err, admin.ErrRefused)
			require.ErrorContains(t, err, "has been edited and requeued")
			require.ErrorIs(t, err, admin.ErrRefused)
			require.ErrorContains(t, err, "has been edited and requeued")
		}
		require.Equal(t, fmt.Sprint("version ", winner), string(b.pendingMessage().Payload))
		require.ErrorIs(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{})), admin.ErrRefused)
		require.Len(t, b.acts(admin.Filter{Action: "edit"}), 1)
	})
}

func TestEdit_is_refused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		keyed := draft("one", "orders", "key")
		keyed.Metadata[postbox.MetadataOrderingKey] = "key"
		b.append(keyed)
		b.bury()
		id, edit := b.only(admin.Filter{}).ID, admin.Again{Payload: message.Payload("new")}
		require.ErrorIs(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: id}, edit)), admin.ErrRefused)
		require.ErrorContains(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: id}, edit)), "set AllowEdit of admin.Config")
		many := errorOf(b.editor().Requeue(t.Context(), admin.Filter{All: true}, edit))
		require.ErrorIs(t, many, admin.ErrInvalid)
		require.ErrorContains(t, many, "they are those of one message")
		require.ErrorIs(t, errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: id + 1}, edit)), admin.ErrNotFound)
		other := admin.Again{Metadata: message.Metadata{postbox.MetadataOrderingKey: "other"}}
		require.ErrorIs(t, errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: id}, other)), admin.ErrRefused)
		require.ErrorContains(t, errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: id}, other)), "the ordering key cannot be changed")
		for _, name := range []string{unique.Key, unique.Mode} {
			err := errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: id}, admin.Again{Metadata: message.Metadata{name: unique.Skip}}))
			require.ErrorIs(t, err, admin.ErrInvalid)
			require.ErrorContains(t, err, "leave "+name+" out of the metadata")
		}
		require.Zero(t, b.pending())
		require.Empty(t, b.acts(admin.Filter{}))

		database.Exec(t, "UPDATE postbox_dead_letters SET metadata = ?", []byte{0xff})
		require.ErrorIs(t, errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: id}, edit)), admin.ErrRefused, "the metadata cannot be decoded")
		edit.Metadata = message.Metadata{"mended": "yes"}
		require.NoError(t, errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: id}, edit)))
		require.Equal(t, message.Metadata{"mended": "yes", postbox.MetadataOrderingKey: "key", "postbox_edited_from": fmt.Sprint(id)}, b.pendingMessage().Metadata)

		require.NoError(t, errorOf(b.admin.Delete(t.Context(), admin.Filter{ID: id})))
		b.append(draft("two", "orders", ""))
	})
}

func TestEdit_G8_takes_16_MiB(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.letters(1)
		large := bytes.Repeat([]byte{'x', 0, 0xff, 1}, 4<<20)
		err := errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: b.only(admin.Filter{}).ID}, admin.Again{Payload: large}))
		if err != nil && database.Dialect == postbox.MySQL {
			require.Contains(t, err.Error(), "packet", "the server's limit")
			require.Zero(t, b.pending())
			require.Len(t, b.list(admin.Filter{}), 1, "nothing has changed")
			return
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(large, b.pendingMessage().Payload))
	})
}

// The consumer's claim is removed, so that it handles the new version.
func TestEdit_G5_letter_of_an_inbox_loses_its_claim(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		b.buryInbox("one", 0)
		letter := b.only(admin.Filter{})
		require.NoError(t, errorOf(b.editor().Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{Payload: message.Payload("new")})))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
		require.Equal(t, "new", string(b.pendingMessage().Payload))
		read, err := b.admin.DeadLetter(t.Context(), letter.ID)
		require.NoError(t, err)
		last := read.Failures[len(read.Failures)-1]
		require.Equal(t, []any{0, "edited and requeued"}, []any{last.Attempt, last.Error})
	})
}
