package kafkabroker

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// errNoCoordinates is permanent, since a message of that kind has none the next time either.
var errNoCoordinates = postbox.Permanent(errors.New("the message has no coordinates: it did not come through a Watermill router and watermill-kafka"))

// Coordinates returns the place of a received message in Kafka and the time that its record has
// there, as "topic/partition/offset/milliseconds since 1970". Every delivery of the record has the
// same coordinates, and no other record of the cluster has them: a topic that is deleted and
// created again begins at offset 0, but with records of another time. So they can serve an inbox as
// the id of a message that has none: it is a WithoutID of middleware.InboxConfig. They differ when
// the producer publishes a message twice: a duplicate that is made before Kafka is not recognised.
//
// It returns a [postbox.Permanent] error for a message that did not come through a Watermill router
// and watermill-kafka: the topic is in the context only inside a handler, and the rest only in a
// message from Kafka.
func Coordinates(msg *message.Message) (string, error) {
	ctx := msg.Context()
	topic := message.SubscribeTopicFromCtx(ctx)
	partition, hasPartition := kafka.MessagePartitionFromCtx(ctx)
	offset, hasOffset := kafka.MessagePartitionOffsetFromCtx(ctx)
	at, hasTime := kafka.MessageTimestampFromCtx(ctx)
	if topic == "" || !hasPartition || !hasOffset || !hasTime {
		return "", errNoCoordinates
	}
	return fmt.Sprintf("%s/%d/%d/%d", topic, partition, offset, at.UnixMilli()), nil
}
