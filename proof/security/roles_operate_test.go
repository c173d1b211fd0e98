package security_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// operate does all that the package admin can.
func (p *play) operate(t *testing.T) {
	t.Helper()
	db := p.as(t, "", "operator", "operator")
	ctx, outbox := t.Context(), admin.Outbox(spool.DefaultOutbox)
	a, err := admin.New(p.database.On(db), admin.Config{}, p.logger)
	require.NoError(t, err)

	queues, err := a.Queues(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, queues)
	_, err = a.Account(ctx, outbox)
	require.NoError(t, err)

	require.NoError(t, a.Pause(ctx, admin.Filter{Target: outbox, All: true}))
	require.NoError(t, a.Resume(ctx, admin.Filter{Target: outbox, All: true}))
	require.NoError(t, a.Pause(ctx, admin.Filter{Target: outbox, Key: "customer"}))
	_, err = a.Paused(ctx, outbox)
	require.NoError(t, err)
	require.NoError(t, a.Resume(ctx, admin.Filter{Target: outbox, Key: "customer"}))
	_, err = a.StuckKeys(ctx, admin.Filter{Target: outbox})
	require.NoError(t, err)
	_, _, err = a.Lanes(ctx, outbox)
	require.NoError(t, err)
	require.NoError(t, a.Pause(ctx, admin.Filter{Target: outbox, Topic: "orders"}))
	_, err = a.Paused(ctx, outbox)
	require.NoError(t, err)
	require.NoError(t, a.Resume(ctx, admin.Filter{Target: outbox, Topic: "orders"}))
	known, _, err := a.Receipts(ctx, admin.Filter{MessageID: "1"})
	require.NoError(t, err)
	require.Len(t, known, 2)
	_, _, err = a.Receipts(ctx, admin.Filter{})
	require.NoError(t, err)
	require.NoError(t, storeSettings(ctx, a, outbox, admin.Settings{PageSize: 10}))

	letters, _, err := a.DeadLetters(ctx, admin.Filter{})
	require.NoError(t, err)
	require.Len(t, letters, 4, "two of the forwarder, of the consumer and the worker")
	for _, letter := range letters {
		_, err = a.DeadLetter(ctx, letter.ID)
		require.NoError(t, err)
	}
	again := admin.Again{Topic: "orders"}
	require.NoError(t, errorOf(a.Requeue(ctx, admin.Filter{ID: letters[0].ID}, again)))
	requeued, err := a.Requeue(ctx, admin.Filter{All: true}, again)
	require.NoError(t, err)
	require.Equal(t, 3, requeued)

	later := p.outbox(t, p.database.DB)
	for _, id := range []string{"to run", "to bury"} {
		msg := message.NewMessage(id, nil)
		delay.Message(msg, delay.For(time.Hour))
		require.NoError(t, later.Publish("orders", msg))
	}
	scheduled, _, err := a.Messages(ctx, admin.Filter{Target: outbox, Status: admin.Scheduled})
	require.NoError(t, err)
	require.Len(t, scheduled, 2)
	_, err = a.Message(ctx, admin.Filter{Target: outbox, ID: scheduled[0].ID})
	require.NoError(t, err)
	require.NoError(t, errorOf(a.Reschedule(ctx, admin.Filter{Target: outbox, ID: scheduled[0].ID}, time.Now().Add(2*time.Hour))))
	require.NoError(t, errorOf(a.Reschedule(ctx, admin.Filter{Target: outbox, ID: scheduled[0].ID}, time.Time{})))
	require.NoError(t, errorOf(a.Bury(ctx, admin.Filter{Target: outbox, ID: scheduled[1].ID}, "not needed")))
	done, _, err := a.Messages(ctx, admin.Filter{Target: admin.Queue("queue"), Status: admin.Done})
	require.NoError(t, err)
	require.NotEmpty(t, done)

	letters, _, err = a.DeadLetters(ctx, admin.Filter{})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.NoError(t, errorOf(a.Resolve(ctx, admin.Filter{ID: letters[0].ID}, "told the customer")))
	require.NoError(t, errorOf(a.Delete(ctx, admin.Filter{ID: letters[0].ID})))
	acts, _, err := a.Audit(ctx, admin.Filter{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(acts), 12)
	p.refused(t, db, countOrders, intrude, stealLanes, changeVersion, changeAudit, deleteAudit, createTable, dropTable)
}

// storeSettings stores settings in place of those that are stored.
func storeSettings(ctx context.Context, a *admin.Admin, target admin.Target, settings admin.Settings) error {
	_, err := a.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		*stored = settings
		return nil
	})
	return err
}
