package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

const oneTrace = `server   POST /orders
  producer send orders, on postbox
    client   send orders, on BROKER
    consumer process orders, on BROKER, waited N ms
    consumer process pay, on postbox, waited N ms, error: the bank is busy
      client   ask the bank
    consumer process pay, on postbox, waited N ms
      client   ask the bank
      producer send payments, on postbox
        client   send payments, on BROKER
        consumer process payments, on BROKER, waited N ms
RESULT traces=1 spans=11
`

// In the order in which the traces began.
const linkedTraces = `server   POST /orders
  producer send orders, on postbox
client   send orders, on BROKER, link to send orders
consumer process orders, on BROKER, waited N ms, link to send orders
consumer process pay, on postbox, waited N ms, error: the bank is busy, link to send orders
  client   ask the bank
consumer process pay, on postbox, waited N ms, link to send orders
  client   ask the bank
  producer send payments, on postbox
client   send payments, on BROKER, link to send payments
consumer process payments, on BROKER, waited N ms, link to send payments
RESULT traces=7 spans=11
`

func TestRun_prints_the_spans_of_an_order(t *testing.T) {
	t.Parallel()
	t.Run("sqlite and gochannel", func(t *testing.T) {
		t.Parallel()
		for parent, want := range map[bool]string{true: oneTrace, false: linkedTraces} {
			requireTree(t, settings{Settings: pipes.Settings{Database: "sqlite", Broker: "gochannel"}, parent: parent}, want)
		}
	})
	t.Run("postgres and kafka", func(t *testing.T) {
		t.Parallel()
		address := testservice.Address(t, testservice.KafkaVariable)
		requireTree(t, settings{parent: true, Settings: pipes.Settings{
			Database: "postgres", DSN: testdb.Postgres(t).DSN,
			Broker: "kafka", BrokerURL: address, TopicPrefix: "example." + postbox.NewMessageID() + ".",
		}}, oneTrace)
	})
}

func requireTree(t *testing.T, s settings, want string) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, s), out.String())
	got := regexp.MustCompile(`waited \d+ ms`).ReplaceAllString(out.String(), "waited N ms")
	require.Equal(t, want, regexp.MustCompile(`on `+s.Broker).ReplaceAllString(got, "on BROKER"))
}
