package deferred

import (
	"context"
	"encoding/json"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
)

// commitsByHand is how many commits run at a time where two do.
const commitsByHand = 2

// onceByHand stores each of many deliveries once, in one statement.
type onceByHand struct {
	create func(ctx context.Context, at site) error
	insert string
	values func(batch []*message.Message) ([]any, error)
}

var (
	// ownQueue is the simplest queue that can do it.
	ownQueue = onceByHand{
		create: func(ctx context.Context, at site) error {
			return accounts.Create(ctx, at.setup, at.createQueue, at.CreateProcessed)
		},
		insert: insertQueueOnce,
		values: queueValues,
	}
	// ourTables are those of Postbox: what they cost shows what the rest of Postbox costs.
	ourTables = onceByHand{
		create: func(ctx context.Context, at site) error { return postbox.Migrate(ctx, at.filling()) },
		insert: insertOwnOnce,
		values: ownValues,
	}
)

// ingestGrouped stores deliveries once, and commits them together, by hand, so many commits at a
// time. It keeps no order and knows no delays, so it shows what so many deliveries can gain by
// sharing commits.
func ingestGrouped(once onceByHand, commits int) measure.Run {
	return onPostgresSite(func(ctx context.Context, stage *measure.Stage, at site) error {
		if err := once.create(ctx, at); err != nil {
			return err
		}
		insert, err := stage.DB.PrepareContext(ctx, once.insert)
		if err != nil {
			return err
		}
		defer func() { _ = insert.Close() }()
		together := load.NewGroup(inFlight, commits, func(batch []*message.Message) error {
			values, err := once.values(batch)
			if err != nil {
				return err
			}
			_, err = insert.ExecContext(ctx, values...)
			return err
		})
		defer together.Close()
		return load.Deliver(ctx, stage, inFlight, at.stored, func(_ context.Context, msg *message.Message) error {
			return together.Do(msg)
		})
	})
}

// queueValues are the arguments of insertQueueOnce.
func queueValues(batch []*message.Message) ([]any, error) {
	var ids pq.StringArray
	var metadata, payloads pq.ByteaArray
	for _, msg := range batch {
		encoded, err := json.Marshal(msg.Metadata)
		if err != nil {
			return nil, err
		}
		ids, metadata, payloads = append(ids, msg.UUID), append(metadata, encoded), append(payloads, msg.Payload)
	}
	return []any{queueName, ids, metadata, payloads}, nil
}

// ownValues are the arguments of insertOwnOnce.
func ownValues(batch []*message.Message) ([]any, error) {
	var lanes, hashes pq.Int64Array
	var claims, ids, keys, metadata, payloads pq.ByteaArray
	for _, msg := range batch {
		encoded, err := json.Marshal(msg.Metadata)
		if err != nil {
			return nil, err
		}
		key := msg.Metadata.Get(postbox.MetadataOrderingKey)
		hash := keyhash.Of(key)
		lanes, hashes = append(lanes, int64(keyhash.Lane(hash, dialect.Lanes))), append(hashes, hash)
		claims, ids, keys = append(claims, ownClaim(msg)), append(ids, []byte(msg.UUID)), append(keys, []byte(key))
		metadata, payloads = append(metadata, encoded), append(payloads, msg.Payload)
	}
	return []any{queueName, claims, lanes, hashes, ids, keys, payloads, metadata}, nil
}

// ownClaim is as long as a claim of Postbox.
func ownClaim(msg *message.Message) []byte { return []byte("sixteen bytes of" + msg.UUID) }
