package crashpoints_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	engine "github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/queue"
)

// moved is the number of lanes that the queue gets.
const moved = 3

// setLanes changes the number of lanes of the queue.
func setLanes(ctx context.Context, p *process) error {
	statements, err := spool.StatementsIn(p.w.database.Postbox())
	if err != nil {
		return err
	}
	operator := engine.NewOperator(p.db, statements, engine.NewAuditor(statements, ""), watermill.NopLogger{}).Settling(0)
	return insist(ctx, func() error {
		_, err := operator.SetLanes(ctx, queueSpool, moved, func(engine.Progress) {})
		return err
	})
}

// The process of an operator who changes the number of lanes ends at each of its statements, and so does that of a worker that goes on with it. Also covers G2, G4.
func TestCrash_G3_while_the_number_of_lanes_changes(t *testing.T) {
	t.Parallel()
	work := processing{config: queue.Config{Transactional: true}}
	messages := deferred(newMessage("a1", "a"), newMessage("b1", "b"), newMessage("a2", "a"))
	check := func(c *check) {
		c.effects("a1", "a2", "b1")
		c.inOrder("a1", "a2")
		c.pending(queueSpool)
		c.require().Equal(moved, c.count("SELECT lanes FROM postbox_spools WHERE name LIKE 'inbox %'"))
		c.require().Equal(1, c.count("SELECT SUM(affected) FROM postbox_audit WHERE action = 'set lanes'"), "the change has one row")
	}
	each(t, flow{
		name: "set lanes", least: 15, prepare: messages, life: setLanes,
		after: func(ctx context.Context, p *process) error { return errors.Join(setLanes(ctx, p), work.life(ctx, p)) },
		check: check,
	}, flow{
		name: "work with messages in old lanes", least: 20,
		prepare: func(ctx context.Context, p *process) error {
			if err := errors.Join(messages(ctx, p), setLanes(ctx, p)); err != nil {
				return err
			}
			// A stale producer has written them with the old number.
			_, err := p.db.ExecContext(ctx, fmt.Sprintf("UPDATE postbox_messages SET lane = id %% %d", lanes))
			return err
		},
		life: work.life, check: check,
	})
}
