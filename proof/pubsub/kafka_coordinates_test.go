package pubsub_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// A topic that is deleted and created begins at offset 0 again. Its records are others, and the
// deliveries of each are one.
func TestInbox_G4_records_of_a_Kafka_topic_that_was_made_again_are_other_records(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE effects (record VARCHAR(100))")
		to := newKafka(t)
		topic := "test-" + watermill.NewUUID()
		all := []string{}
		for _, generation := range []string{"a", "b"} {
			makeTopic(t, to, topic)
			var records []string
			for n := range 4 {
				records = append(records, fmt.Sprint(generation, n))
			}
			produce(t, to, topic, records...)
			all = append(all, records...)
			for _, group := range []string{"first", "second"} { // whose deliveries are duplicates
				consumeAll(t, database, to, topic, generation+group, len(records))
				require.Equal(t, all, effectsOf(t, database), "after group %s of generation %s", group, generation)
			}
			deleteTopic(t, to, topic)
		}
	})
}

// produce sends records without headers, as a producer that is not Watermill does.
func produce(t *testing.T, to *apacheKafka, topic string, records ...string) {
	t.Helper()
	producer, err := sarama.NewSyncProducer(to.brokers, kafkabroker.DefaultPublisherConfig(nil).OverwriteSaramaConfig)
	require.NoError(t, err)
	defer func() { require.NoError(t, producer.Close()) }()
	for n, record := range records {
		_, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(record)})
		require.NoError(t, err)
		require.Equal(t, int64(n), offset)
	}
}

// consumeAll runs a handler with an inbox in a consumer group of its own, until so many messages
// are acked.
func consumeAll(t *testing.T, database *testdb.Database, from *apacheKafka, topic, group string, deliveries int) {
	t.Helper()
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{WithoutID: kafkabroker.Coordinates}, nil)
	require.NoError(t, err)
	subscriber, err := kafka.NewSubscriber(kafkabroker.DefaultSubscriberConfig(from.brokers, topic+group), nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	acked := make(chan error, deliveries)
	router.AddConsumerHandler("coordinates", topic, subscriber, func(msg *message.Message) error {
		tx, _ := postbox.TxFromContext(msg.Context())
		_, err := tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES ('"+string(msg.Payload)+"')") //nolint:gosec // the test's own payload
		return err
	}).AddMiddleware(
		func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				out, err := h(msg)
				acked <- err
				return out, err
			}
		},
		inbox.Middleware)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(ctx) }()
	for range deliveries {
		select {
		case err := <-acked:
			require.NoError(t, err)
		case <-ctx.Done():
			require.Fail(t, "records do not come")
		}
	}
	require.NoError(t, router.Close())
	require.NoError(t, <-stopped)
}

// effectsOf returns the records that had an effect, once for each.
func effectsOf(t *testing.T, database *testdb.Database) (records []string) {
	t.Helper()
	rows, err := database.DB.QueryContext(t.Context(), "SELECT record FROM effects ORDER BY record")
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var record sql.NullString
		require.NoError(t, rows.Scan(&record))
		records = append(records, record.String)
	}
	require.NoError(t, rows.Err())
	return records
}

// makeTopic creates a topic with one partition, and returns when it has a leader and no record.
func makeTopic(t *testing.T, at *apacheKafka, topic string) {
	t.Helper()
	admin := kafkaAdmin(t, at)
	require.Eventually(t, func() bool { // the one before may still be on its way out
		return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false) == nil
	}, patience, tick)
	require.Eventually(t, func() bool {
		client, err := sarama.NewClient(at.brokers, kafkabroker.DefaultPublisherConfig(nil).OverwriteSaramaConfig)
		if err != nil {
			return false
		}
		defer func() { _ = client.Close() }()
		next, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
		return err == nil && next == 0
	}, patience, tick)
}

func deleteTopic(t *testing.T, at *apacheKafka, topic string) {
	t.Helper()
	require.NoError(t, kafkaAdmin(t, at).DeleteTopic(topic))
}

func kafkaAdmin(t *testing.T, at *apacheKafka) sarama.ClusterAdmin {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(at.brokers, kafkabroker.DefaultPublisherConfig(nil).OverwriteSaramaConfig)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	return admin
}
