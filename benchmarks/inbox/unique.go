package inbox

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Unique writes messages with a unique key, beside the same without one. Nothing drains them. A key
// of its own is new with each message. Of the others there are as many as ordering keys, so after
// the first ones each message finds another one that waits.
func Unique() measure.Scenario {
	return measure.Scenario{
		Name:      "write-unique",
		About:     "a transaction of one business insert and one message, 8 clients: without a unique key, with one of its own, and with one of 1,000 whose message waits",
		Floor:     "plain",
		MaxRounds: addedRounds,
		Contenders: []measure.Contender{
			{Name: "plain", Run: func(ctx context.Context, stage *measure.Stage) error {
				return oursWrite(ctx, stage, load.Usual(), writers, uniques(stage))
			}},
			{Name: "skip-new", Run: writeUnique(postbox.SkipIfWaiting, ownKey)},
			{Name: "replace-new", Run: writeUnique(postbox.ReplaceWaiting, ownKey)},
			{Name: "skip-waiting", Run: writeUnique(postbox.SkipIfWaiting, orderingKey)},
			{Name: "replace-waiting", Run: writeUnique(postbox.ReplaceWaiting, orderingKey)},
		},
		Targets: []measure.Target{
			{Name: "unique", Ours: "skip-new", Other: "plain", AtLeast: 0.7},
			{Name: "unique", Ours: "replace-new", Other: "plain", AtLeast: 0.5},
			{Name: "unique", Ours: "skip-waiting", Other: "plain", AtLeast: 0.7},
			{Name: "unique", Ours: "replace-waiting", Other: "plain", AtLeast: 0.5},
		},
	}
}

// ownKey is a unique key that no other message has.
func ownKey(msg *message.Message) string { return msg.UUID }

// orderingKey is a unique key that many messages have, all of them with the same ordering key.
func orderingKey(msg *message.Message) string { return msg.Metadata.Get(postbox.MetadataOrderingKey) }

// writeUnique writes messages with such a unique key.
func writeUnique(mode func(msg *message.Message, key string) *message.Message, key func(msg *message.Message) string) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		return writeOurs(ctx, stage, load.Usual(), writers, uniques(stage), func(msg *message.Message) { mode(msg, key(msg)) })
	}
}

// uniques are the messages that a contender writes: many times as many as there are keys.
func uniques(stage *measure.Stage) int { return stage.Scale(6_000, 3_000) }
