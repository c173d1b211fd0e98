package kafkabroker_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// The hashes are those of the tests of Kafka's Java client; the sign is cut off as it does.
func TestJavaPartitioner_agrees_with_the_client_in_Java(t *testing.T) {
	t.Parallel()
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		for _, partitions := range []int32{1, 6, 12, 1000, 1<<31 - 1} {
			partition, err := kafkabroker.JavaPartitioner("orders").Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder(key)}, partitions)
			require.NoError(t, err)
			require.Equal(t, hash&0x7fffffff%partitions, partition, "key %s of %d partitions", key, partitions)
		}
	}
}
