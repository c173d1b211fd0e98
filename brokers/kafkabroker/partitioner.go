package kafkabroker

import (
	"encoding/binary"
	"hash"

	"github.com/IBM/sarama"
)

// JavaPartitioner chooses partitions as Kafka's Java client does, by the hash Murmur2 of the
// record's key, so that a key has the same partition whether this outbox publishes it or a service
// in Java. Sarama's own hash is FNV, and [DefaultPublisherConfig] keeps it. Set it before the first
// message, since a change moves keys to other partitions, where a message may overtake an older
// one:
//
//	config := kafkabroker.DefaultPublisherConfig(brokers)
//	config.OverwriteSaramaConfig.Producer.Partitioner = kafkabroker.JavaPartitioner
//
// It is a sarama.PartitionerConstructor. It can be used concurrently.
func JavaPartitioner(topic string) sarama.Partitioner {
	return sarama.NewCustomPartitioner(sarama.WithAbsFirst(), sarama.WithCustomHashFunction(func() hash.Hash32 { return &murmur2{} }))(topic)
}

// murmur2 is the hash of Austin Appleby with the seed of Kafka's client.
type murmur2 struct{ key []byte }

func (m *murmur2) Write(p []byte) (int, error) { m.key = append(m.key, p...); return len(p), nil }
func (m *murmur2) Reset()                      { m.key = m.key[:0] }
func (m *murmur2) Size() int                   { return 4 }
func (m *murmur2) BlockSize() int              { return 4 }

// Sum implements hash.Hash.
func (m *murmur2) Sum(b []byte) []byte { return binary.BigEndian.AppendUint32(b, m.Sum32()) }

// Sum32 implements hash.Hash32.
func (m *murmur2) Sum32() uint32 {
	const seed, factor, shift = 0x9747b28c, 0x5bd1e995, 24
	sum, rest := seed^uint32(len(m.key)), m.key //nolint:gosec // a key has less than 4 GB
	for ; len(rest) >= 4; rest = rest[4:] {
		part := binary.LittleEndian.Uint32(rest) * factor
		sum = sum*factor ^ (part^part>>shift)*factor
	}
	if len(rest) > 0 {
		for i, b := range rest {
			sum ^= uint32(b) << (8 * i)
		}
		sum *= factor
	}
	const last, first = 15, 13
	sum = (sum ^ sum>>first) * factor
	return sum ^ sum>>last
}
