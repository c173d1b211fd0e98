package receipts_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/receipts"
)

func TestReceiver_missing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		p := newProducer(t, database)
		for _, test := range []struct {
			name string
			run  func(p *producer)
		}{
			{"a lost receipt is told of once, and a late one completes it", lost},
			{"a failed call comes again and holds up no others", failing},
			{"a crash before it is written down tells again in another process", crashed},
			{"one process at a time tells", alone},
			{"missing receipts are listed in pages by age and consumer", listed},
			{"old receipts are deleted, and awaited ones stay", deleted}, // the last one, since it deletes those of the others
		} {
			t.Run(test.name, func(t *testing.T) { test.run(p.on(t)) }) //nolint:paralleltest // they share a database
		}
	})
}

// calls notes whom a receiver has told of what.
type calls struct {
	told []string
	fail func(params receipts.MissingParams) error
}

func (c *calls) onMissing(_ context.Context, params receipts.MissingParams) error {
	if c.fail != nil {
		if err := c.fail(params); err != nil {
			return err
		}
	}
	c.told = append(c.told, params.Topic+" "+params.MessageID+" "+params.Consumer)
	return nil
}

// round does all maintenance that is due, and hands its tasks back.
func (p *producer) round(receiver *receipts.Receiver) {
	p.Helper()
	cleaner := receiver.Cleaner()
	require.True(p, cleaner.Round(p.Context()))
	ended, cancel := context.WithCancel(p.Context())
	cancel()
	cleaner.Run(ended)
}

func lost(p *producer) {
	var calls calls
	receiver := p.receiver(receipts.Config{OnMissing: calls.onMissing})
	p.publish("soon", "lost")
	p.publish("orders", "in time")
	require.Equal(p, []string{"soon billing awaited"}, p.receipts("lost"))
	p.overdue("lost")
	for range 2 {
		p.round(receiver)
		require.Equal(p, []string{"soon lost billing"}, calls.told)
		require.Equal(p, []string{"soon billing missing"}, p.receipts("lost"))
	}
	require.NoError(p, receiver.Handle(receiptOf(p.T, "soon", "lost", "billing", time.Now())))
	require.Equal(p, []string{"soon billing received"}, p.receipts("lost"))
	p.round(receiver)
	require.Len(p, calls.told, 1)
	require.Equal(p, []string{"missed soon billing", "received soon billing late"}, p.measured.taken())
}

func failing(p *producer) {
	calls := calls{fail: func(params receipts.MissingParams) error {
		switch params.MessageID {
		case "poison":
			return errRefused
		case "panic":
			panic("no")
		}
		return nil
	}}
	receiver := p.receiver(receipts.Config{OnMissing: calls.onMissing})
	p.publish("soon", "poison", "panic", "good")
	p.overdue("poison")
	p.round(receiver)
	require.Equal(p, []string{"soon good billing"}, calls.told)
	require.Equal(p, 2, p.log.Said("could not tell of a receipt"))
	require.Equal(p, []string{"soon billing awaited"}, p.receipts("poison"))
	calls.fail = nil
	p.round(receiver)
	slices.Sort(calls.told)
	require.Equal(p, []string{"soon good billing", "soon panic billing", "soon poison billing"}, calls.told)
	require.Equal(p, []string{"missed soon billing", "missed soon billing", "missed soon billing"}, p.measured.taken())
}

func crashed(p *producer) {
	p.publish("soon", "crash")
	p.overdue("crash")
	db := p.database.Open(p.T)
	first, err := receipts.NewReceiver(p.database.On(db), receipts.Config{OnMissing: func(context.Context, receipts.MissingParams) error {
		return db.Close() // as far as the database can see, the process is gone
	}}, p.log)
	require.NoError(p, err)
	require.False(p, first.Cleaner().Round(p.Context()))
	require.Equal(p, []string{"soon billing awaited"}, p.receipts("crash"))
	p.database.Exec(p, "UPDATE postbox_chores SET expires_at = 0") // as after the lease

	var calls calls
	p.round(p.receiver(receipts.Config{OnMissing: calls.onMissing}))
	require.Equal(p, []string{"soon crash billing"}, calls.told)
	require.Equal(p, []string{"soon billing missing"}, p.receipts("crash"))
}

func alone(p *producer) {
	var first, second calls
	p.publish("soon", "one")
	p.overdue("one")
	holder := p.receiver(receipts.Config{OnMissing: first.onMissing}).Cleaner()
	require.True(p, holder.Round(p.Context()))
	p.publish("soon", "two")
	p.overdue("two")
	other := p.receiver(receipts.Config{OnMissing: second.onMissing}).Cleaner()
	require.True(p, other.Round(p.Context()))
	require.Empty(p, second.told, "it stands by")
	require.True(p, holder.Round(p.Context()))
	require.Equal(p, []string{"soon one billing", "soon two billing"}, first.told)
	ended, cancel := context.WithCancel(p.Context())
	cancel()
	holder.Run(ended) // hands its tasks back
	p.publish("soon", "three")
	p.overdue("three")
	p.round(p.receiver(receipts.Config{OnMissing: second.onMissing}))
	require.Equal(p, []string{"soon three billing"}, second.told)
}

func listed(p *producer) {
	p.publish("soon", "listed 1", "listed 2", "listed 3")
	p.overdue("listed 1")
	p.round(p.receiver(receipts.Config{}))
	p.publish("orders", "listed 4")
	p.database.Exec(p, "UPDATE postbox_receipts SET sent_at = sent_at - 300000000 WHERE topic = 'orders' AND state = 0")

	one := func(filter admin.Filter) (ids []string) {
		filter.Limit = 2
		for {
			page, next, err := p.admin.Receipts(p.Context(), filter)
			require.NoError(p, err)
			require.LessOrEqual(p, len(page), 2)
			for _, r := range page {
				ids = append(ids, r.MessageID+" "+r.Consumer+" "+strings.ToLower(r.Status))
			}
			if next == "" {
				return ids
			}
			filter.After = next
		}
	}
	overdue := one(admin.Filter{Topic: "soon"})
	for _, id := range []string{"listed 1", "listed 2", "listed 3"} {
		require.Contains(p, overdue, id+" billing missing")
	}
	require.Empty(p, one(admin.Filter{Topic: "orders"}), "due in an hour")
	require.Contains(p, one(admin.Filter{Topic: "orders", OlderThan: 4 * time.Minute}), "listed 4 billing awaited")
	require.Contains(p, one(admin.Filter{Consumer: "stock", OlderThan: 4 * time.Minute}), "listed 4 stock awaited")
	require.NotContains(p, one(admin.Filter{Consumer: "stock", OlderThan: 4 * time.Minute}), "listed 4 billing awaited")
	require.Empty(p, one(admin.Filter{OlderThan: time.Hour}))

	_, _, err := p.admin.Receipts(p.Context(), admin.Filter{OlderThan: -1, Limit: -1, After: "2-1-00", Topic: "\xff"})
	require.ErrorIs(p, err, admin.ErrInvalid)
	for _, field := range []string{"older than", "limit", "after", "topic"} {
		require.ErrorContains(p, err, field)
	}
	_, _, err = p.admin.Receipts(p.Context(), admin.Filter{MessageID: "1", OlderThan: time.Hour})
	require.ErrorIs(p, err, admin.ErrInvalid)
}

func deleted(p *producer) {
	p.database.Exec(p, "DELETE FROM postbox_receipts")
	receiver := p.receiver(receipts.Config{Retention: time.Hour, OnMissing: func(_ context.Context, params receipts.MissingParams) error {
		if params.MessageID == "untold" {
			return errRefused
		}
		return nil
	}})
	p.publish("soon", "missing", "late", "untold", "young")
	p.overdue("untold")
	p.round(receiver)
	require.NoError(p, receiver.Handle(receiptOf(p.T, "soon", "late", "billing", time.Now())))
	p.database.Exec(p, "UPDATE postbox_receipts SET due_at = due_at - 3700000000")
	require.NoError(p, receiver.Handle(receiptOf(p.T, "soon", "young", "stock", time.Now())))
	p.round(receiver)
	require.Empty(p, p.receipts("missing"))
	require.Empty(p, p.receipts("late"))
	require.Equal(p, []string{"soon stock received"}, p.receipts("young"))
	require.Equal(p, []string{"soon billing awaited"}, p.receipts("untold"))
}

// A page is what a step tells of before it writes that down.
func TestReceiver_missing_more_than_a_page(t *testing.T) {
	t.Parallel()
	p := newProducer(t, testdb.SQLite(t))
	ids := make([]string, 150)
	for i := range ids {
		ids[i] = postbox.NewMessageID()
	}
	p.publish("soon", ids...)
	p.overdue(ids[len(ids)-1])
	var told atomic.Int64
	broken := errors.New("what the call needs is away")
	receiver := p.receiver(receipts.Config{OnMissing: func(context.Context, receipts.MissingParams) error {
		if told.Add(1) <= 150 {
			return broken
		}
		return nil
	}})
	cleaner := receiver.Cleaner()
	for range 4 { // two pages without success, and then two with it
		require.True(t, cleaner.Round(t.Context()))
	}
	require.EqualValues(t, 300, told.Load())
	missing, _, err := p.admin.Receipts(t.Context(), admin.Filter{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, missing, 150)
	for _, r := range missing {
		require.Equal(t, "MISSING", r.Status)
	}
}

// A receipt that becomes overdue is told of at once, also if pages of others fail each time.
func TestReceiver_missing_tells_of_new_ones_before_it_tries_failed_ones_again(t *testing.T) {
	t.Parallel()
	p := newProducer(t, testdb.SQLite(t))
	failing := make([]string, 250)
	for i := range failing {
		failing[i] = postbox.NewMessageID()
	}
	p.publish("soon", failing...)
	p.overdue(failing[len(failing)-1])
	tried := map[string]int{}
	cleaner := p.receiver(receipts.Config{OnMissing: func(_ context.Context, params receipts.MissingParams) error {
		tried[params.MessageID]++
		if strings.HasPrefix(params.MessageID, "good") {
			return nil
		}
		return errRefused
	}}).Cleaner()
	for range 3 {
		require.True(t, cleaner.Round(t.Context()))
	}
	require.Len(t, tried, len(failing), "each one was tried, page after page")
	for _, good := range []string{"good 1", "good 2"} {
		p.publish("soon", good)
		p.overdue(good)
		require.True(t, cleaner.Round(t.Context()))
		require.Equal(t, 1, tried[good])
		require.Equal(t, []string{"soon billing missing"}, p.receipts(good))
	}
	require.True(t, cleaner.Round(t.Context()))
	for _, id := range failing {
		require.Equal(t, 2, tried[id], "the failed ones come again in the meantime")
	}
}
