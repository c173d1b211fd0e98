package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// limit leaves so many pages of room in the file of SQLite, through the only connection of the
// store.
func (b *queueBench) limit(pages int) {
	b.T.Helper()
	var used int
	require.NoError(b.T, b.Pool.QueryRowContext(b.T.Context(), "PRAGMA page_count").Scan(&used))
	var limit int
	require.NoError(b.T, b.Pool.QueryRowContext(b.T.Context(), "PRAGMA max_page_count = "+fmt.Sprint(used+pages)).Scan(&limit))
}

// large writes an effect, and more than there is room for in a full file. SQLite then ends the
// transaction by itself.
func (b *queueBench) large(ctx context.Context, msg *message.Message) error {
	if err := b.Effect(ctx, msg); err != nil {
		return err
	}
	tx, _ := postbox.TxFromContext(ctx)
	_, err := tx.ExecContext(ctx, "INSERT INTO large VALUES (zeroblob(200000))")
	return err
}

// The engine has room enough to count attempts, and handlers have not.
func TestQueue_G7_a_full_file_of_sqlite_counts_no_attempt(t *testing.T) {
	t.Parallel()
	for mode, change := range map[string]func(*queue.Config){
		"single": inboxtest.Transactional, "micro-batch": func(c *queue.Config) { c.MicroBatch = 4 },
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newQueueBench(t, testdb.SQLite(t))
			b.Exec(t, "CREATE TABLE large (content BLOB)")
			ids := inboxtest.Numbers(8)
			b.Put(ids...)
			b.limit(20)
			var runs inboxtest.Journal
			b.Start(inboxtest.Quick(change), func(msg *message.Message) error {
				runs.Add(msg.UUID)
				return b.large(msg.Context(), msg)
			})
			b.Eventually(func() bool { return len(runs.All()) > 6*len(ids) }, "they are tried again")
			require.Equal(t, len(ids), b.Untried())
			b.limit(10_000)
			b.Drained()
			require.ElementsMatch(t, ids, b.Effects())
			require.Empty(t, b.Attempts())
		})
	}
}

// There is room for what a handler writes, and for the removal of its message, which writes a
// history, but not for both.
func TestQueue_G7_a_full_file_of_sqlite_at_the_removal_counts_no_attempt(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	b.Exec(t, "CREATE TABLE large (content BLOB)")
	b.Exec(t, "CREATE TRIGGER history AFTER DELETE ON postbox_messages BEGIN INSERT INTO large VALUES (zeroblob(60000)); END")
	ids := inboxtest.Numbers(4)
	b.Put(ids...)
	b.limit(20)
	var runs inboxtest.Journal
	b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error {
		runs.Add(msg.UUID)
		tx, _ := postbox.TxFromContext(msg.Context())
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO large VALUES (zeroblob(40000))"); err != nil {
			return err
		}
		return b.Effect(msg.Context(), msg)
	})
	b.Eventually(func() bool { return len(runs.All()) > 6*len(ids) }, "they are tried again")
	require.Equal(t, len(ids), b.Untried())
	b.limit(10_000)
	b.Drained()
	require.ElementsMatch(t, ids, b.Effects())
	require.Empty(t, b.Attempts())
}

// wholeJournal also remembers what is logged with fields.
type wholeJournal struct{ *enginetest.Journal }

func (j wholeJournal) With(watermill.LogFields) watermill.LoggerAdapter { return j }

// No failure can be recorded. The handler does not run again and again meanwhile, and one line says
// why.
func TestQueue_G7_a_full_file_of_sqlite_makes_no_handler_spin(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	logger := wholeJournal{enginetest.NewJournal()}
	b.Logger = logger
	said := func(level watermill.LogLevel) (lines int) {
		for _, line := range logger.At(level) {
			if strings.Contains(line.Msg+fmt.Sprint(line.Err), "disk is full") {
				lines++
			}
		}
		return lines
	}
	ids := inboxtest.Numbers(8)
	b.Put(ids...)
	b.limit(0)
	var runs inboxtest.Journal
	b.Start(inboxtest.Quick(func(*queue.Config) {}), func(msg *message.Message) error {
		if runs.Add(msg.UUID) == 1 {
			return errors.New(strings.Repeat("refused", 2000)) // as long as some pages
		}
		return nil
	})
	b.Eventually(func() bool { return len(runs.All()) == len(ids) && said(watermill.DebugLogLevel) >= 10 }, "it is tried to record their failures")
	require.Len(t, runs.All(), len(ids))
	require.Equal(t, 1, said(watermill.ErrorLogLevel))
	b.limit(10_000)
	b.Drained()
	require.Len(t, runs.All(), 2*len(ids))
}

func TestStore_G7_a_full_SQLite_file_counts_no_failure_at_first(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	b.Exec(t, "CREATE TABLE large (content BLOB)")
	b.limit(20)
	handle := func() error {
		_, err := b.Store.Once(t.Context(), inboxstore.Key{Consumer: "c", MessageID: "m"}, func(ctx context.Context) error {
			return b.large(ctx, message.NewMessage("m", nil))
		})
		return err
	}
	var failure *inboxstore.HandlerError
	err := handle()
	require.Error(t, err)
	require.NotErrorAs(t, err, &failure)
	require.NotErrorIs(t, err, inboxstore.ErrTransactionLost)
	require.ErrorAs(t, handle(), &failure)
	b.limit(10_000)
	require.NoError(t, handle())
	require.Equal(t, []string{"m"}, b.Effects())
}
