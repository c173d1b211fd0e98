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
)

// StatementTimeout bounds each statement of ours: far more than one takes, and an end when a connection hangs.
const StatementTimeout = 30 * time.Second

// MaxLanes is the most lanes that a spool can have.
const MaxLanes = dialect.MaxLanes

// The outbox of a program that names none, and the lanes of a spool whose number is not configured.
const (
	DefaultOutbox = "outbox"
	DefaultLanes  = 32
)

// QueuePrefix starts the names of the spools that are queues of an inbox, to keep them apart from outboxes.
const QueuePrefix = "inbox "

// Executor executes statements, and that is all that storing a message needs once the spool is known: see [postbox.Executor].
type Executor = postbox.Executor

// Querier also reads: a *sql.DB, *sql.Tx or *sql.Conn, and what stands for one in another library.
type Querier interface {
	Executor
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Spool is a named spool of one database. It is safe for concurrent use.
type Spool struct {
	Statements *dialect.Statements
	name       string
	lanes      int
	wakeUp     string // key of the wake-ups in this process

	mu     sync.Mutex
	stored Found // empty until known to be committed, see registration.go
	turn   int   // next lane for a message without a key
}

// ErrNoTables is returned where the tables are missing.
var ErrNoTables = errors.New("the tables are not there, or not of this version, call postbox.Migrate first")

// maxName is what the name of a spool may have in bytes, on every database.
const maxName = 255

// ErrName is returned for a spool whose name not every database can store. MySQL would cut some off without a word, and takes two names for the
// same that differ by spaces at their ends.
var ErrName = errors.New("a name has at most 255 bytes, is UTF-8 text without NUL, and does not end with a space")

// CheckName returns [ErrName] unless the name can be stored.
func CheckName(name string) error {
	if len(name) > maxName || !isText(name) || strings.HasSuffix(name, " ") {
		return fmt.Errorf("%.60q: %w", name, ErrName)
	}
	return nil
}

// isText says whether every database takes the string as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// CheckQueue returns an error unless a queue can have the name.
func CheckQueue(name string) error {
	if name == "" {
		return errors.New("the queue has no name")
	}
	if err := CheckName(QueuePrefix + name); err != nil {
		return fmt.Errorf("the queue %.60q: use at most %d bytes: %w", name, maxName-len(QueuePrefix), ErrName)
	}
	return nil
}

// NameText makes a name that another program has chosen fit for a column of names, for people to read: what is no text in it is
// replaced, and the end of a long one cut off.
func NameText(name string) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxName {
		text = strings.ToValidUTF8(text[:maxName], "")
	}
	return text
}

// New describes a spool; [Spool.Open] and [Spool.OpenIn] find it in the database.
func New(statements *dialect.Statements, name string, lanes int) *Spool {
	return &Spool{
		Statements: statements, name: name, lanes: lanes,
		wakeUp: string(statements.Kind) + " " + statements.Names.Table("messages") + " " + name,
	}
}

// Is says whether the other spool, if it is in the same database, is this one.
func (s *Spool) Is(other *Spool) bool { return s.wakeUp == other.wakeUp }

// Name returns the name of the spool.
func (s *Spool) Name() string { return s.name }

// maxChannel is what PostgreSQL takes as the name of a channel, in bytes.
const maxChannel = 63

// Channel returns the name under which NOTIFY announces messages of this spool. A name that is too long is hashed.
func (s *Spool) Channel() string {
	channel := s.Statements.Names.Prefix + s.name
	if len(channel) > maxChannel {
		return fmt.Sprintf("%s%016x", s.Statements.Names.Prefix, uint64(postbox.KeyHash(s.name))) //nolint:gosec // the bits are kept
	}
	return channel
}

// laneOf returns the lane of a message: that of its key, or, without one, any lane in turn.
func (s *Spool) laneOf(key string) (lane int, hash *int64) {
	if key != "" {
		h := postbox.KeyHash(key)
		return postbox.Lane(h, s.lanes), &h
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = (s.turn + 1) % s.lanes
	return s.turn, nil
}

// Lanes returns how many lanes the spool has.
func (s *Spool) Lanes() int { return s.lanes }
