package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// statementTimeout bounds each statement of ours: far more than one takes, and an end when a connection hangs.
const statementTimeout = 30 * time.Second

// MaxLanes is the most lanes that a spool can have.
const MaxLanes = dialect.MaxLanes

// QueuePrefix starts the names of the spools that are queues of an inbox, to keep them apart from outboxes.
const QueuePrefix = "inbox "

// Executor runs statements: a *sql.DB, *sql.Tx or *sql.Conn.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Spool is a named spool of one database. It is safe for concurrent use.
type Spool struct {
	statements *dialect.Statements
	name       string
	lanes      int
	bell       string

	mu   sync.Mutex
	id   int64 // 0 until known to be committed
	seen sighting
	turn int // next lane for a message without a key
}

// sighting is where a transaction has seen the spool, which it may have registered itself.
type sighting struct {
	in Executor
	id int64
}

// ErrLanes is returned where a spool has another number of lanes than the configuration says.
var ErrLanes = errors.New("number of lanes differs from the stored one")

// maxName is what the name of a spool may have in bytes, on every database.
const maxName = 255

// ErrName is returned for a spool whose name not every database can store. MySQL would cut some off without a word.
var ErrName = errors.New("a name has at most 255 bytes and is UTF-8 text without NUL")

// CheckName returns [ErrName] unless the name can be stored.
func CheckName(name string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%.60q: %w", name, ErrName)
	}
	return nil
}

// NameText makes a name of somebody else's fit for a column of names, for people to read: what is no text in it is
// replaced, and the end of a long one cut off.
func NameText(name string) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxName {
		text = strings.ToValidUTF8(text[:maxName], "")
	}
	return text
}

// New describes a spool; [Spool.Open] finds it in the database.
func New(statements *dialect.Statements, name string, lanes int) *Spool {
	return &Spool{
		statements: statements, name: name, lanes: lanes,
		bell: string(statements.Kind) + " " + statements.Names.Table("messages") + " " + name,
	}
}

// Name returns the name of the spool.
func (s *Spool) Name() string { return s.name }

// maxChannel is what PostgreSQL takes as the name of a channel, in bytes.
const maxChannel = 63

// Channel returns the name under which NOTIFY announces messages of this spool. A name that is too long is hashed.
func (s *Spool) Channel() string {
	channel := s.statements.Names.Prefix + s.name
	if len(channel) > maxChannel {
		return fmt.Sprintf("%s%016x", s.statements.Names.Prefix, uint64(postbox.KeyHash(s.name))) //nolint:gosec // the bits are kept
	}
	return channel
}

// Open finds the spool, or registers it with its number of lanes, and returns its id. It fails with
// [ErrName] where the name cannot be stored, and with [ErrLanes] where the spool is stored with another number of lanes:
// the same key would live in two of them.
// The transaction that registers it may roll back, and sees it until then: the id is remembered when another one sees it.
func (s *Spool) Open(ctx context.Context, db Executor) (int64, error) {
	if id := s.openedID(); id != 0 {
		return id, nil
	}
	if err := CheckName(s.name); err != nil {
		return 0, s.openError(err)
	}
	id, lanes, err := s.find(ctx, db, s.statements.FindSpool)
	registered := errors.Is(err, sql.ErrNoRows)
	if registered {
		if _, err := db.ExecContext(ctx, s.statements.RegisterSpool, s.name, s.lanes); err != nil {
			return 0, fmt.Errorf("register spool %q: %w", s.name, err)
		}
		id, lanes, err = s.find(ctx, db, s.statements.FindNewSpool)
	}
	if err != nil {
		return 0, s.openError(err)
	}
	if lanes != s.lanes {
		return 0, fmt.Errorf("spool %q is stored with %d lanes and configured with %d: configure %d, or drain the spool and change the stored number: %w",
			s.name, lanes, s.lanes, lanes, ErrLanes)
	}
	s.remember(id, db, registered)
	return id, nil
}

// remember keeps the id if it is there to stay. What is no *sql.DB may be a transaction, or something that wraps one.
func (s *Spool) remember(id int64, db Executor, registered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, committed := db.(*sql.DB)
	seenBefore := !registered && s.seen.id == id
	switch known := reflect.TypeOf(db).Comparable(); {
	case committed || (known && seenBefore && s.seen.in != db):
		s.id, s.seen = id, sighting{}
	case known:
		s.seen = sighting{in: db, id: id}
	}
}

func (s *Spool) openedID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

func (s *Spool) find(ctx context.Context, db Executor, query string) (id int64, lanes int, err error) {
	err = db.QueryRowContext(ctx, query, s.name).Scan(&id, &lanes)
	return id, lanes, err
}

func (s *Spool) openError(err error) error {
	if dialect.LacksTable(err) {
		return fmt.Errorf("open spool %q: the tables are not there, call postbox.Migrate first: %w", s.name, err)
	}
	return fmt.Errorf("open spool %q: %w", s.name, dialect.HideAddress(err))
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
