package sources

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	wmforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A row of watermill-sql may hold anything. It becomes a message that an outbox can store, or a
// dead letter that keeps what is there.
func FuzzSource_row(f *testing.F) {
	for _, payload := range []string{
		``, `{}`, `null`, `[]`, `{"destination_topic":"orders","uuid":"1","payload":"aGVsbG8=","metadata":{"a":"b"}}`,
		`{"destination_topic":"a\u0000"}`, `{"destination_topic":"orders","payload":null,"metadata":null}`, `{"destination_topic":"orders","payload":"%"}`,
	} {
		for _, metadata := range []string{``, `null`, `{}`, `{"partition_key":"k"}`, `{"a":1}`, `[]`, "\xff"} {
			f.Add([]byte("id"), []byte(payload), []byte(metadata))
		}
	}
	f.Add([]byte{}, []byte("\x00\xff"), []byte(`{"\u0000":"\ud800"}`))
	f.Fuzz(func(t *testing.T, uuid, payload, metadata []byte) {
		row := sourceRow{uuid: uuid, payload: payload, metadata: metadata}
		for _, source := range []watermillSQL{{Topic: "events"}, {Topic: "events", Envelope: true}} {
			d := decoderFor(source)
			_, err := spool.EncodeMetadata(d.remains(row))
			require.NoError(t, err)
			draft, err := d.draft(row)
			if err != nil {
				continue
			}
			require.NoError(t, spool.CheckTopic(draft.Topic))
			require.NotEmpty(t, draft.MessageID)
			require.NotEmpty(t, draft.Key, "a topic keeps its order")
			if !source.Envelope {
				require.Equal(t, payload, draft.Payload)
			}
		}
	})
}

// enveloped remembers what Watermill's own publisher sends to the topic of its daemon.
type enveloped struct{ sent []*message.Message }

func (e *enveloped) Publish(_ string, messages ...*message.Message) error {
	e.sent = append(e.sent, messages...)
	return nil
}

func (e *enveloped) Close() error { return nil }

// What the publisher of Watermill's components/forwarder wraps comes out of the envelope as it went
// in. It writes JSON, so of strings that are no text the bytes are not its to keep.
func FuzzEnvelope_roundtrip(f *testing.F) {
	f.Add("orders", "id", []byte("hello"), "key", "value")
	f.Add("orders", "", []byte(nil), "\x00", "<&>\u2028")
	f.Add("orders", "id", []byte("\x00\xff"), "", "\uFFFD")
	f.Fuzz(func(t *testing.T, topic, id string, payload []byte, key, value string) {
		for _, text := range []string{id, key, value} {
			if !utf8.ValidString(text) {
				return
			}
		}
		if spool.CheckTopic(topic) != nil {
			return
		}
		out := &enveloped{}
		msg := message.NewMessage(id, payload)
		msg.Metadata.Set(key, value)
		require.NoError(t, wmforwarder.NewPublisher(out, wmforwarder.PublisherConfig{}).Publish(topic, msg))

		wrapped := out.sent[0]
		metadata, err := json.Marshal(wrapped.Metadata)
		require.NoError(t, err)
		draft, err := decoderFor(watermillSQL{Topic: "events", Envelope: true}).draft(
			sourceRow{uuid: []byte(wrapped.UUID), payload: wrapped.Payload, metadata: metadata})
		require.NoError(t, err)
		require.Equal(t, topic, draft.Topic)
		if id == "" {
			id = wrapped.UUID
		}
		require.Equal(t, id, draft.MessageID)
		require.Equal(t, string(payload), string(draft.Payload))
		require.Equal(t, map[string]string{key: value}, draft.Metadata)
	})
}

func FuzzSnapshot(f *testing.F) {
	for _, text := range []string{"", "10:20:10,14,15", "20:20:", "::", "1:2:3,y", "1:9223372036854775807:,", "1:-1:"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSnapshot(text)
		if err != nil || s == nil {
			return
		}
		require.IsNonDecreasing(t, append([]int64{-1 << 63}, s.running...))
	})
}

// A topic becomes part of a table's name, and so of SQL: nothing that a source admits leaves the
// quotes.
func FuzzSource_topic(f *testing.F) {
	for _, topic := range []string{"events", "a-b.c:d$e", `events"; DROP TABLE x`, "a`b", "a\\", "a\x00", "ä", ""} {
		f.Add(topic)
	}
	f.Fuzz(func(t *testing.T, topic string) {
		for dialect, quote := range map[postbox.Dialect]string{postbox.PostgreSQL: `"`, postbox.MySQL: "`"} {
			source := watermillSQL{Topic: topic}
			source.setDefaults(dialect)
			if source.validate(dialect) != nil {
				continue
			}
			for _, table := range []string{source.Table, source.OffsetsTable} {
				require.True(t, strings.HasPrefix(table, quote) && strings.HasSuffix(table, quote), table)
				require.Equal(t, 2, strings.Count(table, quote), table)
				require.NotContains(t, table, `\`)
			}
		}
	})
}
