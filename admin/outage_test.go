package admin_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// away is a broker that is away until it is back.
type away struct {
	back      atomic.Bool
	tries     atomic.Int32
	published atomic.Int32
}

func (a *away) Publish(_ string, messages ...*message.Message) error {
	a.tries.Add(1)
	if !a.back.Load() {
		return errors.New("dial tcp: connection refused")
	}
	for range messages {
		a.published.Add(1)
	}
	return nil
}

func (*away) Close() error { return nil }

// A process tries a broker again after an hour, and an operator knows that it is back.
func TestReschedule_of_a_message_that_met_an_outage_tries_the_topic_at_once(t *testing.T) {
	t.Parallel()
	for name, choose := range map[string]func(m admin.Message) admin.Filter{
		"one": func(m admin.Message) admin.Filter { return admin.Filter{ID: m.ID} },
		"all": func(admin.Message) admin.Filter { return admin.Filter{Topic: "orders", Status: admin.Retrying} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				b.outbox = spool.New(b.statements, "away "+postbox.NewMessageID()[:8])
				b.target = admin.Outbox(b.outbox.Name())
				b.append(draft("first", "orders", ""))
				broker := &away{}
				began := time.Now()
				fwd, err := forwarder.New(database.Postbox(), broker, forwarder.Config{
					Outbox: b.target.Name, Classify: func(error) postbox.ErrorClass { return postbox.Outage },
					Tuning: postbox.Tuning{PollMax: 20 * time.Millisecond, ProbeMin: time.Hour, ProbeMax: time.Hour, Lease: 3 * time.Second},
				}, nil)
				require.NoError(t, err)
				ended := make(chan error, 1)
				go func() { ended <- fwd.Run(t.Context()) }()
				defer func() {
					require.NoError(t, fwd.Close())
					require.NoError(t, <-ended)
				}()
				b.eventually(func() bool { return len(b.info().Outages) == 1 }, "the process tells of the outage")
				outage := b.info().Outages[0]
				require.WithinRange(t, outage.Next, began.Add(time.Hour), time.Now().Add(time.Hour))

				pending := func() admin.Message {
					found, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: b.target, Limit: 1})
					require.NoError(t, err)
					require.Len(t, found, 1)
					return found[0]
				}
				before := broker.tries.Load()
				_, err = b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: pending().ID}, time.Time{})
				require.NoError(t, err)
				b.eventually(func() bool { return pending().Status == admin.Retrying }, "it has tried")
				require.Equal(t, before+1, broker.tries.Load())
				require.Len(t, b.info().Outages, 1, "it is still away")
				filter := choose(pending())
				filter.Target = b.target
				b.append(draft("second", "orders", ""), draft("third", "orders", ""))

				broker.back.Store(true)
				n, err := b.admin.Reschedule(t.Context(), filter, time.Time{})
				require.NoError(t, err)
				require.Equal(t, 1, n)
				b.eventually(func() bool { return broker.published.Load() == 3 && b.pending() == 0 }, "it is back")
				require.LessOrEqual(t, broker.tries.Load(), before+4)
			})
		})
	}
}
