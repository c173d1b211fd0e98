package postbox_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// handled returns the causation of what is produced while a message with this metadata is handled
// by payments.
func handled(t *testing.T, metadata message.Metadata) postbox.Causation {
	t.Helper()
	msg := message.NewMessage("me", nil)
	msg.Metadata = metadata
	causation, err := postbox.CausationOf(msg, postbox.Hop{Module: "payments", EventType: "PaymentTaken"})
	require.NoError(t, err)
	return causation
}

func TestCausation_of_a_message(t *testing.T) {
	t.Parallel()
	first := handled(t, nil)
	require.Equal(t, "me", first.CorrelationID, "a message without a correlation id begins a chain")
	require.Equal(t, "me", first.CausationID)
	require.Equal(t, []postbox.Hop{{Module: "payments", EventType: "PaymentTaken"}}, first.Path)

	metadata := message.Metadata{
		postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "my parent",
		postbox.MetadataCausationPath: `["orders/OrderPlaced"]`, "schema_version": "3",
	}
	later := handled(t, metadata)
	require.Equal(t, "all of us", later.CorrelationID)
	require.Equal(t, "me", later.CausationID, "the direct parent of what I produce")
	require.Equal(t, message.Metadata{
		postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "me",
		postbox.MetadataCausationPath: `["orders/OrderPlaced","payments/PaymentTaken"]`,
	}, later.Stamp(nil), "the schema's version is the producer's affair")
	require.Equal(t, "my parent", metadata[postbox.MetadataCausationID])
	require.Equal(t, "correlation_id", postbox.MetadataCorrelationID, "the key of Watermill's CorrelationID middleware")
}

func TestCausation_stamp_keeps_what_the_user_set(t *testing.T) {
	t.Parallel()
	causation := handled(t, message.Metadata{
		postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "my parent", postbox.MetadataCausationPath: `["orders/OrderPlaced"]`,
	})
	const path = `["orders/OrderPlaced","payments/PaymentTaken"]`
	for name, test := range map[string]struct{ before, after message.Metadata }{
		"other keys":         {message.Metadata{"color": "red"}, message.Metadata{"color": "red", postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "me", postbox.MetadataCausationPath: path}},
		"a correlation id":   {message.Metadata{postbox.MetadataCorrelationID: "mine"}, message.Metadata{postbox.MetadataCorrelationID: "mine", postbox.MetadataCausationID: "me", postbox.MetadataCausationPath: path}},
		"a causation id":     {message.Metadata{postbox.MetadataCausationID: "mine"}, message.Metadata{postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "mine", postbox.MetadataCausationPath: path}},
		"a path that begins": {message.Metadata{postbox.MetadataCausationPath: "[]"}, message.Metadata{postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "me", postbox.MetadataCausationPath: "[]"}},
		"empty is not set":   {message.Metadata{postbox.MetadataCorrelationID: "", postbox.MetadataCausationPath: ""}, message.Metadata{postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "me", postbox.MetadataCausationPath: path}},
		"values of a copied message are replaced": {
			message.Metadata{postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "my parent", postbox.MetadataCausationPath: `["orders/OrderPlaced"]`},
			message.Metadata{postbox.MetadataCorrelationID: "all of us", postbox.MetadataCausationID: "me", postbox.MetadataCausationPath: path},
		},
	} {
		once := causation.Stamp(test.before)
		require.Equal(t, test.after, once, name)
		require.Equal(t, test.after, causation.Stamp(once), "%s, twice", name)
	}
	shared := message.Metadata{"color": "red"}
	_ = causation.Stamp(shared)
	require.Equal(t, message.Metadata{"color": "red"}, shared)
}

func TestCausation_stamp_leaves_out_unknown_values(t *testing.T) {
	t.Parallel()
	require.Empty(t, postbox.Causation{}.Stamp(nil))
	require.Equal(t, message.Metadata{postbox.MetadataCorrelationID: "request"}, postbox.Causation{CorrelationID: "request"}.Stamp(nil))
}

func FuzzCausation_any_name_survives(f *testing.F) {
	for _, name := range []string{
		"", "a/b", "a → b", `"quoted", 'twice'`, `["a/b"]`, "a,b;c", "100%", "%2F", "<&>+ ", "line\nbreak", "Größe",
		"nul\x00", "\xff\xfe", "\xed\xa0\x80",
	} {
		f.Add(name, "OrderPlaced")
		f.Add("orders", name)
		f.Add(name, name)
	}
	f.Fuzz(func(t *testing.T, module, eventType string) {
		t.Parallel()
		path := []postbox.Hop{{Module: "orders", EventType: "OrderPlaced"}, {Module: module, EventType: eventType}}
		stamped := postbox.Causation{Path: path}.Stamp(nil)
		text := stamped.Get(postbox.MetadataCausationPath)
		require.True(t, utf8.ValidString(text) && !strings.ContainsRune(text, 0), "no broker refuses %q", text)
		require.Equal(t, append(path, postbox.Hop{Module: "payments", EventType: "PaymentTaken"}), handled(t, stamped).Path)
	})
}

func TestCausation_path_that_cannot_be_read_is_permanent(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"orders", "null", "{}", "[1]", "[null]", `["orders"]`, `["a/b/c"]`, `["a%zz/b"]`, `["a/b%"]`, `["a/b"`, `["a/b"] and more`,
	} {
		msg := message.NewMessage("1", nil)
		msg.Metadata.Set(postbox.MetadataCausationPath, path)
		_, err := postbox.CausationOf(msg, postbox.Hop{})
		var permanent *verdict.PermanentError
		require.ErrorAs(t, err, &permanent, path)
		require.ErrorContains(t, err, "causation_path", path)
	}
}

func TestCausation_travels_in_a_context(t *testing.T) {
	t.Parallel()
	_, ok := postbox.CausationFromContext(t.Context())
	require.False(t, ok)
	want := handled(t, nil)
	got, ok := postbox.CausationFromContext(postbox.ContextWithCausation(t.Context(), want))
	require.True(t, ok)
	require.Equal(t, want, got)
}

// published returns the metadata that the outbox of a new database stored for a message.
func published(t *testing.T, config forwarder.PublisherConfig, publish func(ctx context.Context, p *forwarder.Publisher, tx *sql.Tx) error) ([]string, error) {
	t.Helper()
	database := testdb.SQLite(t).Migrate(t)
	publisher, err := forwarder.NewPublisher(database.Postbox(), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	err = postbox.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error { return publish(ctx, publisher, tx) })
	rows, queryErr := database.DB.QueryContext(t.Context(), "SELECT metadata FROM postbox_messages ORDER BY id")
	require.NoError(t, queryErr)
	defer func() { _ = rows.Close() }()
	var stored []string
	for rows.Next() {
		var metadata string
		require.NoError(t, rows.Scan(&metadata))
		stored = append(stored, metadata)
	}
	require.NoError(t, rows.Err())
	return stored, err
}

func request(ctx context.Context, id string) *message.Message {
	ctx = postbox.ContextWithCausation(ctx, postbox.Causation{CorrelationID: id})
	return message.NewMessageWithContext(ctx, "of "+id, nil)
}

func TestCausation_outbox_stamps_each_message_by_its_own_context(t *testing.T) {
	t.Parallel()
	for name, publisher := range map[string]func(p *forwarder.Publisher, tx *sql.Tx) message.Publisher{
		"from the context": func(p *forwarder.Publisher, _ *sql.Tx) message.Publisher { return p },
		"bound":            func(p *forwarder.Publisher, tx *sql.Tx) message.Publisher { return p.Bind(tx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, err := published(t, forwarder.PublisherConfig{}, func(ctx context.Context, p *forwarder.Publisher, tx *sql.Tx) error {
				first, second, none := request(ctx, "A"), request(ctx, "B"), message.NewMessageWithContext(ctx, "of nobody", nil)
				first.Metadata = nil
				second.Metadata.Set(postbox.MetadataCausationID, "mine")
				err := publisher(p, tx).Publish("orders", first, second, none)
				require.Nil(t, first.Metadata, "the message itself stays as it is")
				require.Equal(t, message.Metadata{postbox.MetadataCausationID: "mine"}, second.Metadata)
				return err
			})
			require.NoError(t, err)
			require.Equal(t, []string{`{"correlation_id":"A"}`, `{"causation_id":"mine","correlation_id":"B"}`, `{}`}, stored)
		})
	}
}

func TestCausation_outbox_stamp_stands_beside_the_ordering_key(t *testing.T) {
	t.Parallel()
	byTenant := func(string, *message.Message) string { return "tenant" }
	stored, err := published(t, forwarder.PublisherConfig{OrderingKey: byTenant}, func(ctx context.Context, p *forwarder.Publisher, _ *sql.Tx) error {
		return p.Publish("orders", request(ctx, "A"))
	})
	require.NoError(t, err)
	require.Equal(t, []string{`{"correlation_id":"A","partition_key":"tenant"}`}, stored)
}

func TestCausation_outbox_stamp_counts_as_payload(t *testing.T) {
	t.Parallel()
	stored, err := published(t, forwarder.PublisherConfig{MaxPayload: 100}, func(ctx context.Context, p *forwarder.Publisher, _ *sql.Tx) error {
		return p.Publish("orders", request(ctx, strings.Repeat("A", 100)))
	})
	require.ErrorContains(t, err, "MaxPayload")
	require.Empty(t, stored)
}
