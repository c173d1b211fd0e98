package amqpbroker_test

import (
	"math"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"

	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

func TestHeadersOfAnyTypeBecomeReadable(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 8, 1, 14, 0, 0, 0, time.FixedZone("CEST", 2*60*60))
	for name, test := range map[string]struct {
		value any
		want  string
	}{
		"string":        {"text", "text"},
		"nothing":       {nil, ""},
		"bool":          {true, "true"},
		"byte":          {byte(200), "200"},
		"int8":          {int8(-8), "-8"},
		"int16":         {int16(-16), "-16"},
		"int32":         {int32(32), "32"},
		"int64":         {int64(math.MaxInt64), "9223372036854775807"},
		"float32":       {float32(0.1), "0.1"},
		"float64":       {0.25, "0.25"},
		"infinity":      {math.Inf(-1), "-Inf"},
		"not a number":  {math.NaN(), "NaN"},
		"decimal":       {amqp091.Decimal{Scale: 2, Value: -1205}, "-12.05"},
		"whole decimal": {amqp091.Decimal{Value: 7}, "7"},
		"bytes":         {[]byte("raw \xff"), "raw \xff"},
		"time":          {noon, "2026-08-01T12:00:00Z"},
		"array":         {[]any{int32(1), "two", nil, []any{true}}, `[1,"two",null,[true]]`},
		"x-death": {
			[]any{amqp091.Table{"count": int64(3), "time": noon, "queue": "orders", "score": math.NaN(), "raw": []byte("b")}},
			`[{"count":3,"queue":"orders","raw":"b","score":"NaN","time":"2026-08-01T12:00:00Z"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg, err := amqpbroker.Marshaler{}.Unmarshal(amqp091.Delivery{Headers: amqp091.Table{"header": test.value}})
			require.NoError(t, err)
			require.Equal(t, test.want, msg.Metadata.Get("header"))
		})
	}
}

func TestZeroDeliveryIsNoMessage(t *testing.T) {
	t.Parallel()
	_, err := amqpbroker.Marshaler{}.Unmarshal(amqp091.Delivery{})
	require.ErrorContains(t, err, "ended")
	msg, err := amqpbroker.Marshaler{}.Unmarshal(amqp091.Delivery{Acknowledger: &amqp091.Channel{}})
	require.NoError(t, err, "an empty message of a foreign producer")
	require.Empty(t, msg.Payload)
}

func TestUUIDHeader(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		marshaler amqpbroker.Marshaler
		headers   amqp091.Table
		want      string
	}{
		"missing":    {headers: nil, want: ""},
		"present":    {headers: amqp091.Table{amqp.DefaultMessageUUIDHeaderKey: "id"}, want: "id"},
		"not a text": {headers: amqp091.Table{amqp.DefaultMessageUUIDHeaderKey: int64(12)}, want: "12"},
		"renamed": {
			marshaler: amqpbroker.Marshaler{DefaultMarshaler: amqp.DefaultMarshaler{MessageUUIDHeaderKey: "id"}},
			headers:   amqp091.Table{"id": "7"}, want: "7",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg, err := test.marshaler.Unmarshal(amqp091.Delivery{Headers: test.headers, Body: []byte("payload")})
			require.NoError(t, err)
			require.Equal(t, test.want, msg.UUID)
			require.Empty(t, msg.Metadata)
			require.Equal(t, "payload", string(msg.Payload))
		})
	}
}

func TestMarshalerKeepsMetadata(t *testing.T) {
	t.Parallel()
	sent := numbered(1, "\x00 \xff")[0]
	sent.Metadata.Set("naïve\n", "")
	publishing, err := amqpbroker.Marshaler{}.Marshal(sent)
	require.NoError(t, err)
	require.Equal(t, amqp091.Persistent, publishing.DeliveryMode)
	got, err := amqpbroker.Marshaler{}.Unmarshal(amqp091.Delivery{Headers: publishing.Headers, Body: publishing.Body})
	require.NoError(t, err)
	require.True(t, sent.Equals(got))
}
