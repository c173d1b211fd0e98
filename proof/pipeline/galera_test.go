package pipeline_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// Both nodes of a cluster take transactions, and both have forwarders. The second forwarder of the
// first node begins when the session of its pool has statements that the first one keeps prepared.
func TestGalera_G2_G3_two_nodes_that_both_write(t *testing.T) {
	t.Parallel()
	g, err := testcluster.StartGalera(t.Context())
	clustertest.Require(t, g, err)

	prepares := behind(t, postbox.MySQL, "mysql", g.DSN(0, "postbox"))
	require.ErrorContains(t, postbox.Migrate(t.Context(), prepares.Postbox()), "interpolateParams=true")

	var nodes []*testdb.Database
	var made errgroup.Group
	for i := range 2 {
		node := behind(t, postbox.MySQL, "mysql", g.DSN(i, "postbox")+"?interpolateParams=true")
		nodes = append(nodes, node)
		made.Go(func() error { return postbox.Migrate(t.Context(), node.Postbox()) })
	}
	require.NoError(t, made.Wait(), "any number of processes may migrate at once")

	broker := &inOrder{}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	single := behind(t, postbox.MySQL, "mysql", nodes[0].DSN)
	single.DB.SetMaxOpenConns(1)
	for _, node := range []*testdb.Database{single, nodes[1], single} {
		f, err := forwarder.New(node.Postbox(), broker, forwarder.Config{}, nil)
		require.NoError(t, err)
		ended := make(chan error, 1)
		running.Go(func() { ended <- f.Run(ctx) })
		select {
		case <-f.Running():
		case err := <-ended:
			require.NoError(t, err)
		}
	}

	const keys, each = 6, 30
	var producers errgroup.Group
	for key := range keys {
		database := nodes[key%len(nodes)]
		publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, publisher.Close()) }()
		producers.Go(func() error {
			for n := range each {
				msg := message.NewMessage(fmt.Sprintf("%d %03d", key, n), nil)
				msg.Metadata.Set(postbox.MetadataOrderingKey, fmt.Sprint(key))
				err := postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
					msg.SetContext(ctx)
					return publisher.Publish("topic", msg)
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, producers.Wait())
	require.Eventually(t, func() bool { return len(broker.all()) >= keys*each }, patience, testdb.PollPause)
	for key := range keys {
		mine := slices.DeleteFunc(broker.all(), func(id string) bool { return !strings.HasPrefix(id, fmt.Sprint(key, " ")) })
		require.Len(t, mine, each)
		require.True(t, slices.IsSorted(mine), "%q", mine)
	}
}
