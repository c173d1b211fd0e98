package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A subscription that works now makes up for one of its queue that failed, and not for others.
func TestSubscriber_reports_no_failure_that_a_new_subscription_has_cured(t *testing.T) {
	t.Parallel()
	statements, err := dialect.For(dialect.SQLite, "", "", "")
	require.NoError(t, err)
	begun := func(name string) *queue {
		d := drain.New(nil, spool.New(statements, name), nil, drain.Config{}, watermill.NopLogger{})
		return &queue{name: name, drainer: d}
	}
	failed := func(name string) *queue {
		q := begun(name)
		require.Panics(t, func() { _ = q.drainer.Run(t.Context()) }) // it has no database
		require.Error(t, health.Alive(reported{q.health()}))
		return q
	}
	s := &Subscriber{}
	s.follow(failed("mail"))
	s.follow(failed("bills"))
	require.ErrorContains(t, health.Alive(s), "mail")
	s.follow(begun("mail"))
	require.Len(t, s.Health(), 2)
	err = health.Alive(s)
	require.ErrorContains(t, err, "bills")
	require.NotContains(t, err.Error(), "mail")
}

// reported is a state that is asked for.
type reported struct{ state health.State }

func (r reported) Health() []health.State { return []health.State{r.state} }
