package crashpoints_test

import (
	"context"
	"errors"
	"testing"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/queue"
)

// migrate migrates, again where the connection was lost, so many times.
func migrate(times int) func(ctx context.Context, p *process) error {
	return func(ctx context.Context, p *process) error {
		for range times {
			err := insist(ctx, func() error {
				return postbox.Migrate(ctx, p.w.database.On(p.db))
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// use does a bit of everything with the tables.
func use(ctx context.Context, p *process) error {
	if _, err := p.w.database.DB.ExecContext(ctx, createEffects(p.w.database.Dialect)); err != nil {
		return err
	}
	return errors.Join(
		publish("orders", newMessage("one", "k"), newMessage(fatal, "f"))(ctx, p),
		p.forward(ctx, forwarder.Config{}),
		deferred(newMessage("two", "k"))(ctx, p),
		processing{config: queue.Config{Transactional: true}}.life(ctx, p),
	)
}

// Also covers F5.
func TestCrash_F23_while_migrating(t *testing.T) {
	t.Parallel()
	after := func(ctx context.Context, p *process) error {
		return errors.Join(migrate(1)(ctx, p), use(ctx, p))
	}
	eachDatabase(t, func(t *testing.T, d database) {
		reference := d.open(t).Migrate(t)
		reference.Exec(t, createEffects(reference.Dialect))
		schema := list(t, reference, schemas[reference.Dialect])
		versions := list(t, reference, selectVersions)
		check := func(c *check) {
			c.require().Equal(schema, list(c.T, c.w.database, schemas[reference.Dialect]))
			c.require().Equal(versions, list(c.T, c.w.database, selectVersions))
			c.published("orders", "one")
			c.effects("two")
			c.dead(fatal)
		}
		on(t, d,
			flow{name: "migrate", empty: true, least: 15, life: migrate(1), after: after, check: check},
			flow{name: "migrate twice", empty: true, least: 20, life: migrate(2), after: after, check: check},
		)
	})
}
