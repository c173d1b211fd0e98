package kafkabroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// outgoing is a message ready to be sent.
type outgoing struct {
	id     string
	key    string          // ordering key, may be empty
	ctx    context.Context //nolint:containedctx // a Watermill message carries its context
	record *sarama.ProducerMessage
}

func encode(marshaler kafka.Marshaler, topic string, messages []*message.Message) ([]outgoing, error) {
	batch := make([]outgoing, len(messages))
	for i, msg := range messages {
		record, err := marshaler.Marshal(topic, msg)
		if err != nil {
			return nil, fmt.Errorf("message %.60q: %w", msg.UUID, err)
		}
		batch[i] = outgoing{id: msg.UUID, key: msg.Metadata.Get(postbox.MetadataOrderingKey), ctx: msg.Context(), record: record}
	}
	return batch, nil
}

// waves divides a batch into groups that are sent together: the first message of each key, the
// second of each, and so on. Some messages of a group may be accepted and others not. With two
// messages of a key in a group, the later one could then be written before the earlier one, which
// has to be sent again.
func waves(batch []outgoing) [][]outgoing {
	var all [][]outgoing
	seen := make(map[string]int) // messages of each key
	for _, out := range batch {
		wave := seen[out.key]
		if out.key != "" {
			seen[out.key]++
		}
		if wave == len(all) {
			all = append(all, nil)
		}
		all[wave] = append(all[wave], out)
	}
	return all
}

// explain returns the error of one message for the errors of a whole wave: the first of their
// common class, since sarama.ProducerErrors says only how many there are.
func explain(err error, wave []outgoing) error {
	var failed sarama.ProducerErrors
	if !errors.As(err, &failed) {
		return err
	}
	class := classifyAll(failed)
	for _, one := range failed {
		if Classify(one) == class {
			return fmt.Errorf("%d of %d messages sent together failed, message %.60q: %w", len(failed), len(wave), idOf(one.Msg, wave), one.Err)
		}
	}
	return err
}

func idOf(record *sarama.ProducerMessage, wave []outgoing) string {
	for _, out := range wave {
		if out.record == record {
			return out.id
		}
	}
	return "" // a tracer has put another one in its place
}
