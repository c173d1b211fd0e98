package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// natsStartDeadline is how long NATS may take until it accepts connections.
const natsStartDeadline = 20 * time.Second

// natsServer is a NATS server in this process, with JetStream on disk.
type natsServer struct {
	options natsserver.Options
	running *natsserver.Server
}

func openNATS(ctx context.Context) (server, error) {
	folder, err := os.MkdirTemp("", "postbox-nats-")
	if err != nil {
		return nil, err
	}
	s := &natsServer{options: natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: folder, NoLog: true, NoSigs: true,
	}}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return s, nil
}

func (s *natsServer) start(context.Context) error {
	options := s.options
	running, err := natsserver.NewServer(&options)
	if err != nil {
		return err
	}
	running.Start()
	if !running.ReadyForConnections(natsStartDeadline) {
		running.Shutdown()
		return errors.New("NATS does not accept connections")
	}
	s.running, s.options.Port = running, options.Port // NewServer has chosen one
	return nil
}

func (s *natsServer) stop(context.Context) error {
	s.running.Shutdown()
	s.running.WaitForShutdown()
	return nil
}

func (s *natsServer) close() error {
	s.running.Shutdown()
	s.running.WaitForShutdown()
	return os.RemoveAll(s.options.StoreDir)
}

// natsWait is shorter than the client's default of five seconds, so that an outage sees more calls
// fail.
const natsWait = 500 * time.Millisecond

func (s *natsServer) jetStream() nats.JetStreamConfig {
	return nats.JetStreamConfig{
		AutoProvision: true, ConnectOptions: []natsclient.JSOpt{natsclient.MaxWait(natsWait)},
		SubscribeOptions: []natsclient.SubOpt{natsclient.DeliverAll()},
	}
}

func (s *natsServer) publisher(logger watermill.LoggerAdapter) (message.Publisher, error) {
	return nats.NewPublisher(nats.PublisherConfig{URL: s.running.ClientURL(), JetStream: s.jetStream()}, logger)
}

func (s *natsServer) subscriber(logger watermill.LoggerAdapter) (message.Subscriber, error) {
	return nats.NewSubscriber(nats.SubscriberConfig{URL: s.running.ClientURL(), JetStream: s.jetStream()}, logger)
}

// redisServer is a stand-in for Redis in this process. It closes its connections and its port when
// it is stopped, and keeps its streams.
type redisServer struct{ *miniredis.Miniredis }

func openRedis(context.Context) (server, error) {
	running, err := miniredis.Run()
	return redisServer{running}, err
}

func (s redisServer) start(context.Context) error { return s.Restart() }

func (s redisServer) stop(context.Context) error {
	s.Close()
	return nil
}

func (s redisServer) close() error {
	s.Close()
	return nil
}

func (s redisServer) client() redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: s.Addr()})
}

func (s redisServer) publisher(logger watermill.LoggerAdapter) (message.Publisher, error) {
	return redisstream.NewPublisher(redisstream.PublisherConfig{Client: s.client()}, logger)
}

func (s redisServer) subscriber(logger watermill.LoggerAdapter) (message.Subscriber, error) {
	const noBlock = -1 // once it was restarted, the stand-in does not answer reads that block
	return redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: s.client(), FanOutOldestId: "0", DisableIndefiniteInitialBlock: true, BlockTime: noBlock,
	}, logger)
}

// sqlServer is a PostgreSQL of its own, not the one that has the outbox.
type sqlServer struct {
	*testcluster.Postgres

	db *sql.DB
}

func openSQL(ctx context.Context) (server, error) {
	cluster, err := testcluster.StartPostgres(ctx)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("postgres", cluster.PrimaryDSN("postgres"))
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return sqlServer{cluster, db}, nil
}

func (s sqlServer) start(ctx context.Context) error { return s.Start(ctx) }

func (s sqlServer) stop(context.Context) error { return s.Stop(false) }

func (s sqlServer) close() error { return errors.Join(s.db.Close(), s.Close()) }

func (s sqlServer) publisher(logger watermill.LoggerAdapter) (message.Publisher, error) {
	return watermillsql.NewPublisher(s.db, watermillsql.PublisherConfig{
		SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true,
	}, logger)
}

func (s sqlServer) subscriber(logger watermill.LoggerAdapter) (message.Subscriber, error) {
	return watermillsql.NewSubscriber(s.db, watermillsql.SubscriberConfig{
		SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
	}, logger)
}
