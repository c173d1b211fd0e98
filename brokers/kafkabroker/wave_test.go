package kafkabroker_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// fakeProducer is a Kafka that refuses what a test wants refused, and stores the rest, whatever
// stood before it in the same call: so does Kafka.
type fakeProducer struct {
	sarama.SyncProducer // nil: nothing else is called

	refused map[string]error // by key and payload
	hold    chan struct{}    // if set, a call ends when it is closed
	calls   chan struct{}    // gets a token with each call

	mu     sync.Mutex
	waves  [][]string
	stored []string
	closed int
}

func newFakeProducer() *fakeProducer {
	return &fakeProducer{refused: map[string]error{}, calls: make(chan struct{}, 100)}
}

// SendMessages notes key and payload of each message.
func (f *fakeProducer) SendMessages(records []*sarama.ProducerMessage) error {
	f.calls <- struct{}{}
	if f.hold != nil {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed > 0 {
		return errors.New("the producer was given messages after its end, which makes sarama panic")
	}
	var wave []string
	var failed sarama.ProducerErrors
	for _, record := range records {
		key, _ := record.Key.Encode()
		value, _ := record.Value.Encode()
		name := string(key) + string(value)
		wave = append(wave, name)
		if err := f.refused[name]; err != nil {
			failed = append(failed, &sarama.ProducerError{Msg: record, Err: err})
			continue
		}
		f.stored = append(f.stored, name)
	}
	f.waves = append(f.waves, wave)
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// Close counts.
func (f *fakeProducer) Close() error {
	f.closed++
	return nil
}

// messages are those of a list like "a1 a2 b1 _1", key and payload, where _ is no key.
func messages(list string) []*message.Message {
	var all []*message.Message
	for _, name := range strings.Fields(list) {
		msg := message.NewMessage(name[:1], []byte(name[1:])) // the record's key, where there is no other
		if msg.UUID != "_" {
			msg.Metadata.Set(postbox.MetadataOrderingKey, msg.UUID)
		}
		all = append(all, msg)
	}
	return all
}

func TestPublisher_G3_sends_one_message_of_a_key_at_a_time(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		messages string
		waves    []string
	}{
		"nothing":     {"", nil},
		"one":         {"a1", []string{"a1"}},
		"many keys":   {"a1 b1 c1", []string{"a1 b1 c1"}},
		"no keys":     {"_1 _2 _3", []string{"_1 _2 _3"}},
		"one key":     {"a1 a2 a3", []string{"a1", "a2", "a3"}},
		"interleaved": {"a1 a2 b1 a3 _1 b2 c1 _2", []string{"a1 b1 _1 c1 _2", "a2 b2", "a3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafka := newFakeProducer()
			require.NoError(t, kafkabroker.PublisherOn(kafka).Publish("topic", messages(test.messages)...))
			var waves []string
			for _, wave := range kafka.waves {
				waves = append(waves, strings.Join(wave, " "))
			}
			require.Equal(t, test.waves, waves)
		})
	}
}

// A forwarder repeats what failed, and what is stored then stands behind what was stored before it.
func TestPublisher_G3_writes_nothing_of_a_key_after_a_message_that_failed(t *testing.T) {
	t.Parallel()
	kafka := newFakeProducer()
	kafka.refused["a2"] = sarama.ErrNotEnoughReplicas
	publisher := kafkabroker.PublisherOn(kafka)
	batch := messages("a1 a2 a3 b1 b2 b3 c1")
	require.Error(t, publisher.Publish("topic", batch...))
	require.NotContains(t, kafka.stored, "a3")
	require.NotContains(t, kafka.stored, "b3", "it stops at the first wave that fails")

	delete(kafka.refused, "a2")
	require.NoError(t, publisher.Publish("topic", batch...))
	first := map[string]bool{}
	var order []string
	for _, name := range kafka.stored {
		if name[:1] == "a" && !first[name] {
			order = append(order, name)
		}
		first[name] = true
	}
	require.Equal(t, []string{"a1", "a2", "a3"}, order)
}

func TestPublisher_G7_classifies_messages_that_failed_together(t *testing.T) {
	t.Parallel()
	tooLarge, away, strange := error(sarama.ErrMessageSizeTooLarge), error(sarama.ErrNotEnoughReplicas), errors.New("out of paper")
	for name, test := range map[string]struct {
		refused map[string]error
		class   postbox.ErrorClass
		is      error
		says    string
	}{
		"message fault":             {map[string]error{"b2": tooLarge}, postbox.MessageFault, tooLarge, `1 of 3 messages sent together failed, message "b"`},
		"outage":                    {map[string]error{"c3": away}, postbox.Outage, away, `message "c"`},
		"outage beside fault":       {map[string]error{"a1": tooLarge, "c3": away}, postbox.Outage, away, `2 of 3`},
		"network":                   {map[string]error{"a1": strange, "b2": &net.OpError{Op: "write", Err: strange}}, postbox.Outage, strange, `message "b"`},
		"unknown":                   {map[string]error{"c3": strange}, postbox.Unclassified, strange, `message "c"`},
		"unknown beside fault":      {map[string]error{"a1": tooLarge, "b2": strange}, postbox.Unclassified, strange, `message "b"`},
		"larger than Kafka accepts": {map[string]error{"a1": sarama.ConfigurationError("large")}, postbox.MessageFault, sarama.ConfigurationError("large"), `topic "topic"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kafka := newFakeProducer()
			kafka.refused = test.refused
			err := kafkabroker.PublisherOn(kafka).Publish("topic", messages("a1 b2 c3")...)
			require.Equal(t, test.class, kafkabroker.Classify(err), "%v", err)
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestPublisher_sends_nothing_when_a_message_cannot_be_encoded(t *testing.T) {
	t.Parallel()
	kafka := newFakeProducer()
	batch := messages("a1 b1")
	batch[1].Metadata.Set("_watermill_message_uuid", "reserved")
	err := kafkabroker.PublisherOn(kafka).Publish("topic", batch...)
	require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err), "%v", err)
	require.Empty(t, kafka.waves)
}

func TestPublisher_G12_sends_no_wave_after_the_end_of_a_context(t *testing.T) {
	t.Parallel()
	kafka := newFakeProducer()
	kafka.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	batch := messages("a1 a2")
	batch[1].SetContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- kafkabroker.PublisherOn(kafka).Publish("topic", batch...) }()
	<-kafka.calls
	cancel()
	close(kafka.hold)
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Equal(t, []string{"a1"}, kafka.stored)
}

func TestPublisher_G12_Close_waits_for_calls_in_flight(t *testing.T) {
	t.Parallel()
	kafka := newFakeProducer()
	kafka.hold = make(chan struct{})
	publisher := kafkabroker.PublisherOn(kafka)
	published := make(chan error, 1)
	go func() { published <- publisher.Publish("topic", messages("a1 a2")...) }()
	<-kafka.calls

	var closers sync.WaitGroup
	for range 3 {
		closers.Go(func() {
			if err := publisher.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return publisher.Publish("topic") != nil }, patience, tick, "it takes no more calls")
	close(kafka.hold)
	closers.Wait()
	require.NoError(t, <-published)
	require.Equal(t, []string{"a1", "a2"}, kafka.stored)

	require.NoError(t, publisher.Close())
	require.Equal(t, 1, kafka.closed)
	err := publisher.Publish("topic", messages("a3")...)
	require.ErrorIs(t, err, postbox.ErrClosed)
	require.Equal(t, postbox.Outage, kafkabroker.Classify(err), "a stopping process must not count attempts")
}
