package kafkabroker_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// network dials for a client, and can go down.
type network struct {
	dial func(protocol, address string) (net.Conn, error)

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

var errUnplugged = errors.New("unplugged")

// Dial implements the dialer that sarama asks for.
func (n *network) Dial(protocol, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, &net.OpError{Op: "dial", Net: protocol, Err: errUnplugged}
	}
	conn, err := n.dial(protocol, address)
	if err == nil {
		n.conns = append(n.conns, conn)
	}
	return conn, err
}

func (n *network) setDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for _, conn := range n.conns {
		_ = conn.Close() // the client may have closed it itself
	}
	n.conns = nil
}

func TestLostConnectionIsAnOutageThatEnds(t *testing.T) {
	t.Parallel()
	eachPublisher(t, testLostConnection)
}

func testLostConnection(t *testing.T, open openPublisher) {
	t.Helper()
	topic := newTopic(t, nil)
	connection := &network{dial: func(protocol, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(t.Context(), protocol, address)
	}}
	config := kafkabroker.DefaultPublisherConfig(kafkaBrokers(t))
	config.OverwriteSaramaConfig.Net.Proxy.Enable = true
	config.OverwriteSaramaConfig.Net.Proxy.Dialer = connection
	publisher := open.publisher(t, config)
	sent := keyedMessage("k")
	require.NoError(t, publisher.Publish(topic, sent))

	connection.setDown(true)
	for range 5 { // the later ones meet sarama's open circuit breaker
		err := publisher.Publish(topic, keyedMessage("k"), keyedMessage("l"), keyedMessage("k"))
		require.Error(t, err)
		require.Equal(t, postbox.Outage, kafkabroker.Classify(err), "%v", err)
	}

	connection.setDown(false)
	last := keyedMessage("k")
	require.Eventually(t, func() bool {
		err := publisher.Publish(topic, last)
		return err == nil || kafkabroker.Classify(err) != postbox.Outage
	}, patience, 100*time.Millisecond)
	got := receive(t, subscribe(t, topic), 2)
	require.Equal(t, sent.UUID, got[0].message.UUID)
	require.Equal(t, last.UUID, got[1].message.UUID)
}
