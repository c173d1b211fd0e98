package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
)

// StatementTimeout bounds each statement of Postbox. It is far longer than a statement takes, and
// ends one on a connection that hangs, except with lib/pq: see docs/databases.md.
const StatementTimeout = 30 * time.Second

// DefaultOutbox is the default name of an outbox.
const DefaultOutbox = "outbox"

// QueuePrefix begins the names of spools that are queues of an inbox, so that they differ from the
// names of outboxes.
const QueuePrefix = "inbox "

// InboxPrefix begins the names of spools that have only a history: the messages that the inboxes of
// a consumer have handled.
const InboxPrefix = "received:"

// The kinds of spools, as users know them.
const (
	KindOutbox = "outbox"
	KindQueue  = "queue"
	KindInbox  = "inbox"
)

// noSpool ends the name of a spool that cannot exist: [CheckName] refuses it.
const noSpool = "\x00"

// OutboxName returns the name of the spool of an outbox. For an empty name, and for one that is
// reserved for queues and inboxes, that is the name of a spool that cannot exist, so that the queue
// or the inbox is not taken for it.
func OutboxName(outbox string) string {
	if isReserved(outbox) {
		return outbox + noSpool
	}
	return outbox
}

// isReserved reports whether a spool of this name is no outbox.
func isReserved(name string) bool {
	return name == "" || strings.HasPrefix(name, QueuePrefix) || strings.HasPrefix(name, InboxPrefix)
}

// Named returns the kind of a spool, and the name of the outbox or the queue, or of the consumer of
// an inbox.
func Named(spool string) (kind, name string) {
	if outbox, reserved := strings.CutSuffix(spool, noSpool); reserved && isReserved(outbox) {
		return KindOutbox, outbox
	}
	if queue, is := strings.CutPrefix(spool, QueuePrefix); is {
		return KindQueue, queue
	}
	if consumer, is := strings.CutPrefix(spool, InboxPrefix); is {
		return KindInbox, consumer
	}
	return KindOutbox, spool
}

// InboxName returns the name of the spool for the inboxes of a consumer. The name of a consumer is
// chosen by another program, and may be longer than that of a spool, or no text: then the spool is
// that of the part that can be stored.
func InboxName(consumer string) string { return strings.TrimRight(NameText(InboxPrefix+consumer), " ") }

// Executor executes statements. Storing a message needs nothing else once the spool is known: see
// [postbox.Executor].
type Executor = postbox.Executor

// Querier also runs queries: a *sql.DB, *sql.Tx or *sql.Conn, or its equivalent in another library.
type Querier interface {
	Executor
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Spool is a named spool of one database. It is safe for concurrent use.
type Spool struct {
	Statements *dialect.Statements
	name       string
	wakeUp     string // key of the wake-ups in this process

	mu     sync.Mutex
	id     int64     // 0 until known to be committed, see registration.go
	readAt time.Time // when the id was read
	turn   int       // counts messages without a key
}

// ErrNoTables is returned if the tables are missing.
var ErrNoTables = errors.New("the tables are missing or of another version, call postbox.Migrate first")

// maxName is the maximum length in bytes of the name of a spool, on every database.
const maxName = 255

// ErrName is returned for a spool whose name some database cannot store. MySQL would truncate some
// names silently, and treats two names as equal that differ only by spaces at their ends.
var ErrName = errors.New("a name has at most 255 bytes, is UTF-8 text without NUL, and does not end with a space")

// CheckName returns [ErrName] unless the name can be stored.
func CheckName(name string) error {
	if len(name) > maxName || !isText(name) || strings.HasSuffix(name, " ") {
		return fmt.Errorf("%.60q: %w", name, ErrName)
	}
	return nil
}

// isText reports whether every database accepts the string as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// CheckQueue returns an error unless the name is valid for a queue.
func CheckQueue(name string) error {
	if name == "" {
		return errors.New("the queue has no name")
	}
	if err := CheckName(QueuePrefix + name); err != nil {
		return fmt.Errorf("the queue %.60q: use at most %d bytes: %w", name, maxName-len(QueuePrefix), ErrName)
	}
	return nil
}

// NameText makes a name that another program has chosen fit for a column of names, for people to
// read. It replaces bytes that are no text, and truncates a long name.
func NameText(name string) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxName {
		text = strings.ToValidUTF8(text[:maxName], "")
	}
	return text
}

// New returns a spool; [Spool.Open] and [Spool.OpenIn] find it in the database, or register it.
func New(statements *dialect.Statements, name string) *Spool {
	return &Spool{
		Statements: statements, name: name,
		wakeUp: string(statements.Kind) + " " + statements.Names.Table("messages") + " " + name,
	}
}

// Is reports whether both spools are the same, if they are in the same database.
func (s *Spool) Is(other *Spool) bool { return s.wakeUp == other.wakeUp }

// Name returns the name of the spool.
func (s *Spool) Name() string { return s.name }

// maxChannel is the maximum length in bytes of the name of a channel in PostgreSQL.
const maxChannel = 63

// Channel returns the name under which NOTIFY announces messages of this spool. A name that is too
// long is hashed.
func (s *Spool) Channel() string {
	channel := s.Statements.Names.Prefix + s.name
	if len(channel) > maxChannel {
		return fmt.Sprintf("%s%016x", s.Statements.Names.Prefix, uint64(keyhash.Of(s.name))) //nolint:gosec // keeps the bits
	}
	return channel
}

// LaneOf returns the lane of a key, by its hash.
func LaneOf(hash int64) int { return keyhash.Lane(hash, dialect.Lanes) }

// laneOf returns the lane of a message: the lane of its key, or each lane in turn for messages
// without a key.
func (s *Spool) laneOf(hash *int64) int {
	if hash != nil {
		return LaneOf(*hash)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = (s.turn + 1) % dialect.Lanes
	return s.turn
}
