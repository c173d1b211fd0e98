package main

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/examples/cqrs/contract"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// formatProtobuf shows a payload of Protocol Buffers as JSON. It knows the messages whose code is
// in the program. For others, read the descriptors that protoc writes with --descriptor_set_out,
// and make the messages with dynamicpb.
func formatProtobuf(p dashboard.PayloadParams) (text string, ok bool) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("shop." + p.Metadata.Get("name")))
	if err != nil {
		return "", false
	}
	content := kind.New().Interface()
	if err := proto.Unmarshal(p.Payload, content); err != nil {
		return "", false
	}
	return protojson.Format(content), true
}

func TestPayloads_of_protobuf_are_shown_as_JSON(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	msg, err := marshalers["protobuf"].Marshal(&contract.OrderPlaced{OrderId: "order-1", Cents: 4711})
	require.NoError(t, err)
	require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
		msg.SetContext(ctx)
		return publisher.Publish("orders", msg)
	}))

	operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	handler, err := dashboard.New(operator, dashboard.Config{Authorise: dashboard.LoopbackOnly, FormatPayload: formatProtobuf}, nil)
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/message?outbox=outbox&id=1", nil)
	request.RemoteAddr = "127.0.0.1:4711"
	page := httptest.NewRecorder()
	handler.ServeHTTP(page, request)
	require.Equal(t, http.StatusOK, page.Code, page.Body)
	require.Contains(t, strings.ReplaceAll(page.Body.String(), " ", ""), `&#34;orderId&#34;:&#34;order-1&#34;`)
}
