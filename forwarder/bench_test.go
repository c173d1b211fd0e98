package forwarder_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// BenchmarkRelay bounds what the forwarder itself costs a message: it drains a backlog, with
// default settings, into a publisher that does nothing. After a crash it counts the start of each
// message before.
func BenchmarkRelay(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) { //nolint:thelper // the body of a benchmark
		for _, keyed := range []bool{false, true} {
			b.Run(fmt.Sprintf("keyed=%t", keyed), func(b *testing.B) { benchmarkRelay(b, database, keyed, false) })
		}
		b.Run("after_crash", func(b *testing.B) { benchmarkRelay(b, database, true, true) })
	})
}

func benchmarkRelay(b *testing.B, database *testdb.Database, keyed, crashed bool) {
	b.Helper()
	database.Migrate(b)
	preload(b, database, b.N, keyed)
	if crashed {
		crash(b, database)
	}
	sink := &countingPublisher{want: int64(b.N), reached: make(chan struct{})}
	fwd, err := forwarder.New(database.Postbox(), sink, forwarder.Config{}, nil)
	require.NoError(b, err)
	ended := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ended <- fwd.Run(context.WithoutCancel(b.Context())) }()
	<-sink.reached
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	require.NoError(b, fwd.Close())
	require.NoError(b, <-ended)
}

// crash leaves the lanes as a process does that held them all, and whose leases have run out.
func crash(b *testing.B, database *testdb.Database) {
	b.Helper()
	database.Exec(b, "DELETE FROM postbox_lanes")
	for lane := range dialect.Lanes {
		database.Exec(b, database.Bind("INSERT INTO postbox_lanes (spool, lane, holder) SELECT id, ?, 'crashed' FROM postbox_spools"), lane)
	}
}

// preload fills the outbox with so many messages of 256 bytes, of a thousand keys or of none.
func preload(b *testing.B, database *testdb.Database, n int, keyed bool) {
	b.Helper()
	const page, keys = 1000, 1000
	publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(b, err)
	payload := make([]byte, 256)
	for start := 0; start < n; start += page {
		messages := make([]*message.Message, 0, page)
		for i := start; i < min(start+page, n); i++ {
			msg := message.NewMessage(postbox.NewMessageID(), payload)
			if keyed {
				msg.Metadata.Set(postbox.MetadataOrderingKey, fmt.Sprint("key-", i%keys))
			}
			messages = append(messages, msg)
		}
		require.NoError(b, postbox.InTx(b.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
			return publisher.Bind(tx).Publish("topic", messages...)
		}))
	}
	require.NoError(b, publisher.Close())
}

// countingPublisher does nothing, and tells when it was given as many messages as are wanted.
type countingPublisher struct {
	want    int64
	got     atomic.Int64
	reached chan struct{}
}

func (p *countingPublisher) Publish(_ string, messages ...*message.Message) error {
	if p.got.Add(int64(len(messages))) == p.want {
		close(p.reached)
	}
	return nil
}

func (p *countingPublisher) Close() error { return nil }

// BenchmarkPublish bounds what a message costs the transaction that it is written in.
func BenchmarkPublish(b *testing.B) {
	benchmarkPublish(b, func(msg *message.Message) *message.Message { return msg })
}

// BenchmarkPublishUnique is BenchmarkPublish with a unique key for each message.
func BenchmarkPublishUnique(b *testing.B) {
	b.Run("skip", func(b *testing.B) {
		benchmarkPublish(b, func(msg *message.Message) *message.Message { return postbox.SkipIfWaiting(msg, msg.UUID) })
	})
	b.Run("replace", func(b *testing.B) {
		benchmarkPublish(b, func(msg *message.Message) *message.Message { return postbox.ReplaceWaiting(msg, "one key") })
	})
}

func benchmarkPublish(b *testing.B, mark func(msg *message.Message) *message.Message) {
	b.Helper()
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) { //nolint:thelper // the body of a benchmark
		database.Migrate(b)
		publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
		require.NoError(b, err)
		payload := make([]byte, 256)
		b.ReportAllocs()
		for b.Loop() {
			err := postbox.InTx(b.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg := mark(message.NewMessage(postbox.NewMessageID(), payload))
				msg.SetContext(ctx)
				return publisher.Publish("topic", msg)
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		require.NoError(b, publisher.Close())
	})
}
