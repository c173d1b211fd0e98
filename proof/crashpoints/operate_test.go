package crashpoints_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/queue"
)

// scheduled returns a message that is not due for long.
func scheduled(id, key string) *message.Message {
	msg := newMessage(id, key)
	delay.Message(msg, delay.For(time.Hour))
	return msg
}

// control tells a queue what to do, until everything in it is due or dead and nothing is paused.
func control(ctx context.Context, p *process) error {
	operator, err := p.operator()
	if err != nil {
		return err
	}
	target := admin.Queue(queueName)
	with := func(id string, do func(message int64) error) error {
		return insist(ctx, func() error {
			found, _, err := operator.Messages(ctx, admin.Filter{Target: target, MessageID: id})
			if err != nil || len(found) == 0 {
				return err
			}
			return do(found[0].ID)
		})
	}
	say := func(do func() error) error { return insist(ctx, do) }
	return errors.Join(
		say(func() error { return operator.Pause(ctx, admin.Filter{Target: target, All: true}) }),
		say(func() error { return operator.Pause(ctx, admin.Filter{Target: target, Key: "k"}) }),
		with("now", func(id int64) error {
			return errorOf(operator.Reschedule(ctx, admin.Filter{Target: target, ID: id}, time.Time{}))
		}),
		with("soon", func(id int64) error {
			return errorOf(operator.Reschedule(ctx, admin.Filter{Target: target, ID: id}, time.Unix(1, 0)))
		}),
		with("never", func(id int64) error {
			return errorOf(operator.Bury(ctx, admin.Filter{Target: target, ID: id}, "nobody needs it"))
		}),
		say(func() error { return storeSettings(ctx, operator, target, admin.Settings{History: time.Hour}) }),
		say(func() error { return operator.Resume(ctx, admin.Filter{Target: target, Key: "k"}) }),
		say(func() error { return operator.Resume(ctx, admin.Filter{Target: target, All: true}) }),
	)
}

// Also covers G2 and F5.
func TestCrash_G9_while_an_operator_works(t *testing.T) {
	t.Parallel()
	work := processing{config: queue.Config{Transactional: true}}
	each(t, flow{
		name: "operate", least: 20, prepare: deferred(scheduled("now", "k"), scheduled("soon", "k"), scheduled("never", "")), life: control,
		instant: func(c *check) { c.account(admin.Queue(queueName), c.accountOf(3)) },
		after: func(ctx context.Context, p *process) error {
			return errors.Join(control(ctx, p), work.life(ctx, p))
		},
		check: func(c *check) {
			c.effects("now", "soon")
			c.pending(queueSpool)
			c.require().Contains(c.letters(), "never")
			c.account(admin.Queue(queueName), admin.Account{Written: 3, Done: 2, Dead: 1})
		},
	})
}

// accountOf returns the account that so many messages make, of which some may be dead.
func (c *check) accountOf(written int) admin.Account {
	c.Helper()
	dead := len(c.letters())
	return admin.Account{Written: written, Pending: written - dead, Dead: dead}
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }

// storeSettings stores settings in place of those that are stored.
func storeSettings(ctx context.Context, a *admin.Admin, target admin.Target, settings admin.Settings) error {
	_, err := a.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		*stored = settings
		return nil
	})
	return err
}
