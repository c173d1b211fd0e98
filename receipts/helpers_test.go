package receipts_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/receipts"
)

// producer is the side that awaits receipts: of "orders" within an hour, and of "soon" within a
// millisecond.
type producer struct {
	*testing.T

	database *testdb.Database
	outbox   *forwarder.Publisher
	admin    *admin.Admin
	measured *notes
	log      *enginetest.Journal
}

func newProducer(t *testing.T, database *testdb.Database) *producer {
	t.Helper()
	database.Migrate(t)
	outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{Receipts: []forwarder.Expectation{
		{Topic: "orders", Consumers: []string{"billing", "stock"}, Within: time.Hour},
		{Topic: "soon", Consumers: []string{"billing"}, Within: time.Millisecond},
	}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = outbox.Close() })
	operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	return &producer{t, database, outbox, operator, &notes{}, enginetest.NewJournal()}
}

// on returns the producer for a subtest.
func (p *producer) on(t *testing.T) *producer {
	t.Helper()
	return &producer{t, p.database, p.outbox, p.admin, &notes{}, enginetest.NewJournal()}
}

// receiver returns another receiver, as another process has one.
func (p *producer) receiver(config receipts.Config) *receipts.Receiver {
	p.Helper()
	database := p.database.Postbox()
	database.Metrics = p.measured
	receiver, err := receipts.NewReceiver(database, config, p.log)
	require.NoError(p, err)
	return receiver
}

// publish writes messages with these ids to the outbox, in one transaction.
func (p *producer) publish(topic string, ids ...string) {
	p.Helper()
	require.NoError(p, postbox.InTx(p.Context(), p.database.DB, func(ctx context.Context, _ *sql.Tx) error {
		messages := make([]*message.Message, len(ids))
		for i, id := range ids {
			messages[i] = message.NewMessage(id, nil)
			messages[i].SetContext(ctx)
		}
		return p.outbox.Publish(topic, messages...)
	}))
}

// overdue returns once the receipt of a message is overdue.
func (p *producer) overdue(id string) {
	p.Helper()
	require.Eventually(p, func() bool {
		missing, _, err := p.admin.Receipts(p.Context(), admin.Filter{Limit: 1000})
		return err == nil && slices.ContainsFunc(missing, func(r admin.Receipt) bool { return r.MessageID == id })
	}, enginetest.Patience, testdb.PollPause)
}

// receipts returns what is known of a message, as lines of topic, consumer and status.
func (p *producer) receipts(id string) []string {
	p.Helper()
	known, _, err := p.admin.Receipts(p.Context(), admin.Filter{MessageID: id})
	require.NoError(p, err)
	lines := make([]string, len(known))
	for i, r := range known {
		lines[i] = r.Topic + " " + r.Consumer + " " + strings.ToLower(r.Status)
	}
	slices.Sort(lines)
	return lines
}

// capture is an outbox of a consumer that keeps what is published.
type capture struct{ messages []*message.Message }

func (c *capture) Publish(_ string, messages ...*message.Message) error {
	c.messages = append(c.messages, messages...)
	return nil
}

func (*capture) Close() error        { return nil }
func (*capture) PublishesInTx() bool { return true }

// receiptOf returns the receipt that a consumer sends, as the broker delivers it.
func receiptOf(t *testing.T, topic, id, consumer string, handled time.Time) *message.Message {
	t.Helper()
	out := &capture{}
	require.NoError(t, receipt.Publish(t.Context(), out, "receipts", receipt.Receipt{Consumer: consumer, Topic: topic, MessageID: id, HandledAt: handled}))
	require.Len(t, out.messages, 1)
	out.messages[0].SetContext(t.Context())
	return out.messages[0]
}

// notes is a recorder that notes each measurement.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) Record(i *metrics.Instrument, _ float64, labels ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, strings.TrimPrefix(i.Name, "postbox.receipts.")+" "+strings.Join(labels, " "))
}

// taken returns the lines since the last call.
func (n *notes) taken() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}
