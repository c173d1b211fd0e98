package deferred

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/queue"
)

// stuck is the key whose oldest message fails, and so holds back the others of the key.
const stuck = "stuck"

// long is enough messages that the start, when what is stuck is passed over, is a small part of the
// run.
func long(stage *measure.Stage) int { return stage.Scale(100_000, 20_000) }

// Sequential handles the messages of 1,000 keys, each key in order, beside a key that is stuck and
// beside none.
func Sequential() measure.Scenario {
	return measure.Scenario{
		Name:  "sequential",
		About: "work off 1,000 keys in order, with 100,000 older messages of a key whose first one fails, and without them",
		Floor: "none-stuck",
		Shared: func(ctx context.Context, stage *measure.Stage) error {
			if err := onStage(stage).fill(ctx, 0); err != nil {
				return err
			}
			list := load.Messages(0, stage.Scale(100_000, 20_000))
			for _, msg := range list {
				msg.Metadata.Set(postbox.MetadataOrderingKey, stuck)
			}
			return onStage(stage).store(ctx, list)
		},
		Contenders: []measure.Contender{
			{Name: "one-stuck", InShared: true, Run: func(ctx context.Context, stage *measure.Stage) error {
				if err := onStage(stage).store(ctx, load.Messages(0, long(stage))); err != nil {
					return err
				}
				return inOrder(ctx, stage)
			}},
			{Name: "none-stuck", Run: func(ctx context.Context, stage *measure.Stage) error {
				if err := onStage(stage).fill(ctx, long(stage)); err != nil {
					return err
				}
				return inOrder(ctx, stage)
			}},
		},
		Targets: []measure.Target{{Name: "sequential", Ours: "one-stuck", Other: "none-stuck", AtLeast: 0.9}},
	}
}

// inOrder handles all messages but those of the stuck key. Its oldest one fails again in each
// round.
//
// What the round before has removed is not to be passed over too, where the other contender's
// database is new. And the server knows of the backlog, as it does where one has stood for a
// minute: it chose other plans then than in an hour in which autovacuum had not come by yet.
func inOrder(ctx context.Context, stage *measure.Stage) error {
	if _, err := stage.Setup.ExecContext(ctx, "VACUUM ANALYZE postbox_messages"); err != nil {
		return err
	}
	config := queue.Config{
		Concurrency: concurrent, Retry: postbox.RetryProfile{Attempts: -1, Base: time.Second, Cap: time.Second},
	}
	return onStage(stage).work(ctx, stage, long(stage), config, func(msg *message.Message) error {
		if msg.Metadata.Get(postbox.MetadataOrderingKey) == stuck {
			return errors.New("this one never succeeds")
		}
		return nil
	})
}
