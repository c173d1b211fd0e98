package kafkabroker_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// Also covers G2.
func TestBatch_G3_arrives_once_and_in_the_order_of_each_key(t *testing.T) {
	t.Parallel()
	const keys, each, unkeyed = 50, 4, 100
	topic := newTopic(t, nil)
	var batch []*message.Message
	for n := range each {
		for k := range keys {
			msg := keyedMessage("key-" + strconv.Itoa(k))
			msg.Payload = []byte(strconv.Itoa(n))
			batch = append(batch, msg)
		}
	}
	for range unkeyed {
		batch = append(batch, message.NewMessage(postbox.NewMessageID(), nil))
	}
	require.NoError(t, newPublisher(t).Publish(topic, batch...))
	last := keyedMessage("last")
	require.NoError(t, newPublisher(t).Publish(topic, last))

	all := receive(t, subscribe(t, topic), len(batch)+1)
	require.ElementsMatch(t, ids(append(batch, last)), receivedIDs(all))
	requireOrderOfKeys(t, slices.DeleteFunc(all, func(got received) bool {
		return got.message.UUID == last.UUID || got.message.Metadata.Get(postbox.MetadataOrderingKey) == ""
	}))
}

// One that the producer does not take fails at once and by itself, while those around it are on
// their way: without waves the third message of its key is in Kafka before it.
func TestBatch_G3_sends_nothing_of_a_key_after_a_message_that_is_too_large(t *testing.T) {
	t.Parallel()
	needsRefusals(t)
	limit := "1000"
	for name, size := range map[string]int{"for the producer": 2 << 20, "for the topic": 2000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, func(detail *sarama.TopicDetail) {
				detail.ConfigEntries = map[string]*string{"max.message.bytes": &limit}
			})
			publisher := newPublisher(t)
			first, large, behind, beside := keyedMessage("k"), keyedMessage("k"), keyedMessage("k"), keyedMessage("l")
			large.Payload = make([]byte, size)
			err := publisher.Publish(topic, first, large, behind, beside)
			require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err), "%v", err)
			require.ErrorContains(t, err, fmt.Sprintf("message %q", large.UUID))

			last := keyedMessage("k")
			require.NoError(t, publisher.Publish(topic, last))
			all := receivedIDs(receive(t, subscribe(t, topic), 3))
			require.ElementsMatch(t, ids([]*message.Message{first, beside, last}), all)
			require.Less(t, slices.Index(all, first.UUID), slices.Index(all, last.UUID))
		})
	}
}

func ids(all []*message.Message) []string {
	var list []string
	for _, msg := range all {
		list = append(list, msg.UUID)
	}
	return list
}

func receivedIDs(all []received) []string {
	var list []string
	for _, got := range all {
		list = append(list, got.message.UUID)
	}
	return list
}
