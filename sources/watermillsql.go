package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/takeover"
)

// WatermillSQL is a table written by a publisher of watermill-sql, v3 or v4, with
// DefaultPostgreSQLSchema or DefaultMySQLSchema. A forwarder takes messages over from it: those
// beyond the position of the old daemon, and those that producers with the old publisher go on
// writing. The table is in the database of the outbox.
//
// Each row is inserted into the outbox and deleted from the table in one transaction, so it is
// taken over once, whatever crashes. From then on it is a message like any other, but a delay of it
// is dropped. A transaction that a producer leaves open delays no other messages: its rows are
// found when they become visible. Rows that the old daemon has forwarded stay.
//
// The old daemon may run at the same time, as it does during a rollout. Both hold the row of the
// consumer group in the table of offsets while they work, so each message is taken by one of them.
// To roll back, start the old daemon again: it finds the rows that were not taken over. Order
// across the two holds once one of them has stopped and has sent the messages that it had taken.
// Until then the old daemon may send a row while earlier ones wait in the outbox.
//
// A row that is no message, because its metadata or its envelope cannot be read, becomes a dead
// letter with the payload as it is and the row's topic.
//
// A queue of watermill-sql v4 (PostgreSQLQueueSchema, MySQLQueueSchema, and those with delays) is
// not such a table: no row is taken over from it, and the log says so once.
//
// Messages that a producer writes to the outbox itself are in no order with messages of the table
// that have not been taken over yet.
//
// A position is a transaction id on PostgreSQL, and in a cluster restored from a dump these begin
// anew (watermill issue 576). A position of the old daemon that lies in the future cannot be
// trusted: no row is taken over, and the log says so, until the rows that were forwarded are
// deleted and last_processed_transaction_id is set to '0'.
func WatermillSQL(config Config) forwarder.Source { return watermillSQL(config) }

// Config says which table of watermill-sql is taken over, and how.
type Config struct {
	// Topic is the topic of the table, which producers give to the publisher of watermill-sql. With
	// components/forwarder it is the forwarder topic, "forwarder_topic" unless configured.
	// Required.
	Topic string
	// Table is the table of messages, as SQL writes its name. Defaults to the table of
	// DefaultPostgreSQLSchema or DefaultMySQLSchema for the topic.
	Table string
	// OffsetsTable is the table of consumer groups, as SQL writes its name; it may be missing.
	// Defaults to the table of DefaultPostgreSQLOffsetsAdapter or DefaultMySQLOffsetsAdapter for
	// the topic.
	OffsetsTable string
	// ConsumerGroup is the consumer group of the old daemon. Defaults to "", as in watermill-sql.
	ConsumerGroup string
	// IgnoreOtherGroups takes messages over even if the table of offsets names other consumer
	// groups, which will not get these messages. By default no message is taken over then, and the
	// log names the groups: stop their subscribers, have them subscribe to the broker instead, and
	// delete their rows.
	IgnoreOtherGroups bool

	// Envelope says that the rows are envelopes of Watermill's components/forwarder, which contain
	// the topic of each message. By default the rows are the messages, and go to Destination.
	Envelope bool
	// Destination is the topic of messages that are in no envelope. Defaults to Topic.
	Destination string
	// KeyFrom returns the ordering key of a message; messages without one ("") are in no order. The
	// key travels as the metadata [postbox.MetadataOrderingKey]. By default the key is that
	// metadata. Without that metadata it is the destination topic, which does not travel: so a
	// topic keeps the total order that it had. That means one message of a topic at a time; return
	// different keys to get concurrency.
	KeyFrom func(topic string, msg *message.Message) string

	// PageSize is the number of rows that one transaction takes over, fewer if they have megabytes.
	// At most 10,000. Defaults to 2000.
	PageSize int
	// PollMin and PollMax bound the pause between two polls that find nothing; the pause doubles
	// from one to the other. Each poll costs one statement. Default to 5 ms and 1 s.
	PollMin, PollMax time.Duration
}

type watermillSQL Config

const (
	// maxSourcePage bounds the memory for a page, and the time for which it locks its rows.
	maxSourcePage = 10_000
	// maxSourceName is what the name of a source may have in bytes, on every database.
	maxSourceName = 255
)

func (s watermillSQL) Check(kind postbox.Dialect) error {
	s.setDefaults(kind)
	return s.validate(kind)
}

func (s watermillSQL) TakeOver(ctx context.Context, into takeover.Outbox) {
	s.setDefaults(postbox.Dialect(into.Statements.Kind))
	newTransfer(into, s).Run(ctx)
}

// defaultTables returns the tables in which watermill-sql keeps a topic. They are empty if
// watermill-sql has no schema for the database.
func defaultTables(dialect postbox.Dialect, topic string) (messages, offsets string) {
	switch dialect {
	case postbox.PostgreSQL:
		return wmsql.DefaultPostgreSQLSchema{}.MessagesTable(topic), wmsql.DefaultPostgreSQLOffsetsAdapter{}.MessagesOffsetsTable(topic)
	case postbox.MySQL:
		return wmsql.DefaultMySQLSchema{}.MessagesTable(topic), wmsql.DefaultMySQLOffsetsAdapter{}.MessagesOffsetsTable(topic)
	case postbox.SQLite:
	}
	return "", ""
}

func (s *watermillSQL) setDefaults(dialect postbox.Dialect) {
	messages, offsets := defaultTables(dialect, s.Topic)
	s.Table = cmp.Or(s.Table, messages)
	s.OffsetsTable = cmp.Or(s.OffsetsTable, offsets)
	if !s.Envelope {
		s.Destination = cmp.Or(s.Destination, s.Topic)
	}
	s.PageSize = cmp.Or(s.PageSize, drain.DefaultPageSize)
	s.PollMin = cmp.Or(s.PollMin, drain.DefaultPollMin)
	s.PollMax = cmp.Or(s.PollMax, max(drain.DefaultPollMax, s.PollMin))
}

// sourceTopic admits what watermill-sql admits: a topic becomes a part of SQL text.
var sourceTopic = regexp.MustCompile(`^[A-Za-z0-9\-$:._]+$`)

// validate returns all that is wrong with the source, for the dialect of its forwarder.
func (s watermillSQL) validate(kind postbox.Dialect) error {
	if table, _ := defaultTables(kind, s.Topic); table == "" {
		return fmt.Errorf("watermill-sql has no schema for %s that Postbox can read: use PostgreSQL or MySQL, or leave Sources empty", dialect.Kind(kind).Can().Name)
	}
	var problems []error
	if !sourceTopic.MatchString(s.Topic) {
		problems = append(problems, fmt.Errorf("Topic: %.300q is not a topic of watermill-sql: use only letters, digits and -$:._", s.Topic))
	}
	for name, value := range map[string]string{"Table": s.Table, "OffsetsTable": s.OffsetsTable, "ConsumerGroup": s.ConsumerGroup} {
		if len(value) > maxSourceName {
			problems = append(problems, fmt.Errorf("%s: it has more than %d bytes", name, maxSourceName))
		}
	}
	if s.Envelope && s.Destination != "" {
		problems = append(problems, errors.New("Destination: set Destination or Envelope, not both, since an envelope already names the destination of its message"))
	}
	if !s.Envelope && s.Destination != "" {
		if err := spool.CheckTopic(s.Destination); err != nil {
			problems = append(problems, fmt.Errorf("Destination: %w", err))
		}
	}
	if s.PageSize < 0 || s.PageSize > maxSourcePage {
		problems = append(problems, fmt.Errorf("PageSize: %d is not between 1 and %d", s.PageSize, maxSourcePage))
	}
	problems = append(problems, drain.InOrder("Poll", s.PollMin, s.PollMax))
	return errors.Join(problems...)
}
