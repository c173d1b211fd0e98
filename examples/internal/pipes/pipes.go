// Package pipes opens what some of the examples run on: a database and a broker, chosen by flags.
// Without flags it is SQLite in a temporary file and Watermill's GoChannel, so that Go is all that
// is needed.
//
//	settings := pipes.Flags()
//	flag.Parse()
//	p, err := settings.Open(ctx, prefix)
//	defer p.Close()
//
// It is for the examples: a program of yours knows its database and its broker.
package pipes

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Settings say which database and which broker.
type Settings struct {
	// Database is "sqlite" or "postgres".
	Database string
	// DSN is the file of SQLite, a temporary one where it is empty, or the URL of PostgreSQL.
	DSN string
	// Broker is "gochannel", "rabbitmq" or "kafka".
	Broker string
	// BrokerURL is the URI of RabbitMQ, or Kafka's brokers with commas between them.
	BrokerURL string
	// TopicPrefix is put before the name of each topic on the broker.
	TopicPrefix string
	// Verbose logs what Watermill and Postbox have to say, which includes the failures that an
	// example plans.
	Verbose bool
}

// Flags adds the settings to the flags of the program. They are there after flag.Parse.
func Flags() *Settings {
	s := &Settings{}
	flag.StringVar(&s.Database, "database", "sqlite", "sqlite or postgres")
	flag.StringVar(&s.DSN, "dsn", "", "file of SQLite (default a temporary one), or URL of PostgreSQL (default $DATABASE_URL)")
	flag.StringVar(&s.Broker, "broker", "gochannel", "gochannel, rabbitmq or kafka")
	flag.StringVar(&s.BrokerURL, "broker-url", "", "URI of RabbitMQ (default $AMQP_URI), or brokers of Kafka (default $KAFKA_BROKERS)")
	flag.StringVar(&s.TopicPrefix, "topic-prefix", "postbox.example.", "is put before the name of each topic")
	flag.BoolVar(&s.Verbose, "verbose", false, "log also the failures that are planned")
	return s
}

// Pipes are an open database and an open broker.
type Pipes struct {
	DB      *sql.DB
	Dialect postbox.Dialect
	// ListenDSN lets forwarders and queues hear at once of commits of other processes. Empty on
	// SQLite.
	ListenDSN string

	// Publisher of the broker, for forwarders.
	Publisher message.Publisher
	// Classify tells outages of the broker from faults of a message, for forwarders.
	Classify func(error) postbox.ErrorClass
	// BatchSize is how many messages the broker likes in one call, for forwarders.
	BatchSize int

	Logger watermill.LoggerAdapter

	broker  broker
	prefix  string
	cleanup []func() error // run by Close, the last first
}

// broker is what the brokers differ in.
type broker interface {
	// subscriber returns one of the group. The topics exist then, in their full names.
	subscriber(group string, topics []string) (message.Subscriber, error)
}

// Open opens both, and makes the tables of Postbox in the database, with each of the prefixes.
func (s Settings) Open(ctx context.Context, prefixes ...string) (*Pipes, error) {
	p := &Pipes{Logger: watermill.NopLogger{}, prefix: s.TopicPrefix}
	if s.Verbose {
		p.Logger = watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	}
	err := p.openDatabase(s)
	if err == nil {
		err = p.migrate(ctx, prefixes)
	}
	if err == nil {
		err = p.openBroker(s)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Pipes) migrate(ctx context.Context, prefixes []string) error {
	for _, prefix := range prefixes {
		if err := postbox.Migrate(ctx, p.Tables(prefix)); err != nil {
			return err
		}
	}
	return nil
}

// Tables are those of Postbox with a prefix.
func (p *Pipes) Tables(prefix string) postbox.Database {
	return postbox.Database{DB: p.DB, Dialect: p.Dialect, Prefix: prefix}
}

// NewSubscriber returns a subscriber of the broker. Subscribers of the same group share the
// messages, each group gets all. The topics that it is for exist afterwards, and keep what is
// published from then on; only GoChannel keeps nothing for a group that has not subscribed yet:
// start forwarders after subscribers, and stop them before. On GoChannel each subscriber of a group
// gets all messages, which an inbox takes for duplicates.
func (p *Pipes) NewSubscriber(group string, topics ...string) (message.Subscriber, error) {
	full := make([]string, len(topics))
	for i, topic := range topics {
		full[i] = p.prefix + topic
	}
	subscriber, err := p.broker.subscriber(group, full)
	if err != nil {
		return nil, fmt.Errorf("subscriber of group %q: %w", group, err)
	}
	return prefixedSubscriber{subscriber, p.prefix}, nil
}

// Close closes the broker and the database, and removes a temporary file. Close routers and
// forwarders before.
func (p *Pipes) Close() error {
	var problems []error
	for len(p.cleanup) > 0 {
		last := len(p.cleanup) - 1
		problems = append(problems, p.cleanup[last]())
		p.cleanup = p.cleanup[:last]
	}
	return errors.Join(problems...)
}

func (p *Pipes) onClose(closers ...func() error) { p.cleanup = append(p.cleanup, closers...) }

// fromEnvironment returns what was set by flag, else by one of the variables, else the default.
func fromEnvironment(flagged, fallback string, variables ...string) string {
	for _, name := range variables {
		flagged = cmp.Or(flagged, os.Getenv(name))
	}
	return cmp.Or(flagged, fallback)
}
