// Package dialect contains the SQL text of Postbox. It executes only what recognises a server and
// checks that it fits.
//
// The folder statements has a file for each database, with every statement as it runs. Times are
// microseconds since 1970 in UTC, as integers, on every database: no driver setting, session time
// zone or summer time can change their meaning.
package dialect

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Kind names a database.
type Kind string

// The databases, named as the root package names them.
const (
	PostgreSQL Kind = "postgresql"
	MySQL      Kind = "mysql"
	SQLite     Kind = "sqlite"
)

// States of a stored message.
const (
	// StateReady: the message may be handled as soon as its turn comes.
	StateReady = 0
	// StateScheduled: the message waits for the time that its producer requested. It holds back no
	// other message.
	StateScheduled = 1
	// StateRetrying: the message failed and waits for its next attempt. It holds back later
	// messages of its key.
	StateRetrying = 2
	// StateMeta marks the row of a fetch that is not a message: see [Statements.Fetch].
	StateMeta = -1
)

// Lanes is the number of lanes of each spool, for ever: the lane of a stored message follows from
// it. A power of two could be doubled, which splits each lane in two. More lanes cost more where
// each is read by itself.
const Lanes = 32

// ParkedFrom is the due time in microseconds from which on a retrying message counts as parked: it
// waits for an operator, and its key waits behind it. ParkDelay, added to any time, exceeds it.
const (
	ParkedFrom = 1 << 62
	ParkDelay  = ParkedFrom
)

// Origins of a dead letter.
const (
	// OriginSpool: a message that was stored in this database and could not be delivered.
	OriginSpool = 0
	// OriginInbox: a message from a broker whose handler kept failing.
	OriginInbox = 1
)

// Query is a statement with its arguments.
type Query struct {
	Text string
	Args []any
	// Once is set for a text that depends on the number of rows and is not worth preparing.
	Once bool
	// names are those of the arguments, as far as they have names.
	names []string
}

// Row is a message to append.
type Row struct {
	Lane      int
	State     int
	KeyHash   *int64
	Due       int64 // absolute time; 0 means Delay from now
	Delay     int64
	Topic     string
	MessageID []byte
	Key       []byte // nil without an ordering key
	Payload   []byte
	Metadata  []byte
}

// Ref identifies a stored message together with the fencing token under which its lane is held. The
// id alone does not identify a message: a database that is restored or promoted issues ids again,
// but not at the same microsecond.
type Ref struct {
	State     int
	Lane      int
	Token     int64
	ID        int64
	CreatedAt int64 // the row's created_at
	// Began is when the message was handed to its handler, by the clock of the process; zero: it
	// was not. The history has how long it took.
	Began time.Time
}

// took is how long ago the message was handed to its handler, in microseconds.
func (r Ref) took() int64 {
	if r.Began.IsZero() {
		return 0
	}
	return max(time.Since(r.Began).Microseconds(), 1)
}

// Cursor is the id after which a lane is read, and the one up to which. 0: up to its end.
type Cursor struct {
	Lane        int
	After, UpTo int64
}

// upTo returns the highest id that is read.
func (c Cursor) upTo() int64 {
	if c.UpTo == 0 {
		return math.MaxInt64
	}
	return c.UpTo
}

// FetchParams are the parameters of one read of a spool.
type FetchParams struct {
	Spool    int64
	Cursors  []Cursor        // lanes to read
	PerLane  int             // maximum number of ready messages of each lane
	UpTo     int64           // if not 0: all ready messages up to this id, instead of PerLane; then all cursors have the same After
	Due      int             // maximum number of due scheduled and retrying messages, over all these lanes; on MySQL of each of the two
	Inline   int             // payloads up to this many bytes are returned, larger ones as NULL
	Known    map[int][]Known // messages that the caller already has, by lane
	Excluded []string        // topics to leave out
	Mark     bool            // also return the transaction that starts next
	LookFrom int64           // where messages are looked for, for a mark: those with this id or a higher one; 0: nowhere
	// Unordered lets messages of a key overtake one that waits for another attempt.
	Unordered bool
	// PausedKeys is true if there are paused keys.
	PausedKeys bool
	// Held are hashes of keys that the caller knows to wait, and whose messages are left out.
	Held []int64
}

// LeavesOut reports whether the read leaves out messages that may be handled later.
func (p FetchParams) LeavesOut() bool { return p.PausedKeys || len(p.Excluded)+len(p.Held) > 0 }

// Known is a message that the caller of a fetch already has.
type Known struct {
	ID, CreatedAt int64
}

// known returns the messages of all lanes.
func (p FetchParams) known() []Known {
	var known []Known
	for _, ofLane := range p.Known {
		known = append(known, ofLane...)
	}
	return known
}

// nameBits is the number of bits of the id in a message's name, next to its time.
const nameBits = 20

// name is the number that identifies a message by its id and its time, as each database computes it
// in a read. Comparing one number costs a lookup in a hash or a tree. A pair costs several times as
// much on PostgreSQL, and a scan of the whole list on SQLite. Two messages have the same name only
// if they were stored in the same microsecond, with a million others between them.
func (k Known) name() uint64 {
	return uint64(k.CreatedAt)<<nameBits | uint64(k.ID)&(1<<nameBits-1) //nolint:gosec // the bits are meant
}

// signedNames lists names for databases with signed numbers, names for MySQL, where the result of a
// shift is unsigned.
func signedNames(known []Known) []int64 {
	names := make([]int64, len(known))
	for i, k := range known {
		names[i] = int64(k.name()) //nolint:gosec // the bits are meant
	}
	return names
}

func names(known []Known) []uint64 {
	names := make([]uint64, len(known))
	for i, k := range known {
		names[i] = k.name()
	}
	return names
}

// conditions name the parts of a text that the read needs.
func (p FetchParams) conditions() (conditions []string) {
	if !p.Unordered {
		conditions = append(conditions, "ordered")
	}
	if p.PausedKeys {
		conditions = append(conditions, "paused")
	}
	if len(p.Held) > 0 {
		conditions = append(conditions, "held")
	}
	if len(p.Excluded) > 0 {
		conditions = append(conditions, "excluded")
	}
	return conditions
}

// lists builds the statements whose text depends on their arguments, and writes lists as the
// database takes them.
type lists interface {
	append(spool int64, rows []Row) []Query
	ingest(spool int64, claims [][]byte, rows []Row) Ingest
	appendUnique(p UniqueParams) Unique
	fetch(p FetchParams) Query
	sweep(p SweepParams) Query
	remove(spool int64, refs []Ref, seen *Seen) Query
	keep(spool int64, refs []Ref) Query
	// The next two return the arguments of statements about messages, with the spool.
	refs(spool int64, refs []Ref) args
	asRead(spool int64, messages []AsRead) args
	numbers(list []int64) any   // a list as one argument
	nullable(list []*int64) any // a list with NULL for nil
}

// Check returns an error unless the kind is one of the constants above.
func (k Kind) Check() error {
	switch k {
	case PostgreSQL, MySQL, SQLite:
		return nil
	case "":
		return errors.New("dialect is missing: use postbox.PostgreSQL, postbox.MySQL or postbox.SQLite")
	default:
		return fmt.Errorf("dialect %.60q is unknown: use postbox.PostgreSQL, postbox.MySQL or postbox.SQLite", string(k))
	}
}

// For checks the user's description of a database, and returns the statements for it. The error
// lists all problems.
func For(kind Kind, schema, prefix, deployment string) (*Statements, error) {
	names, err := NewNames(schema, prefix, deployment)
	if err := errors.Join(kind.Check(), err, kind.CheckSchema(schema)); err != nil {
		return nil, err
	}
	return New(kind, names)
}

// New returns the statements for a kind of database and the names of its tables.
func New(kind Kind, names Names) (*Statements, error) {
	if err := kind.CheckSchema(names.Schema); err != nil {
		return nil, err
	}
	switch kind {
	case PostgreSQL:
		return newPostgres(names), nil
	case MySQL:
		return newMySQL(names), nil
	case SQLite:
		return newSQLite(names), nil
	default:
		return nil, fmt.Errorf("dialect %q is unknown: use %q, %q or %q", kind, PostgreSQL, MySQL, SQLite)
	}
}

// Append inserts rows into a spool, in the order of the rows and of the queries.
func (s *Statements) Append(spool int64, rows []Row) []Query { return s.lists.append(spool, rows) }

// Fetch reads the messages of the lanes: first ready messages after each lane's cursor in the order
// of their ids, without those behind a retrying message of their key, then messages that are due.
// Its columns are those of fetchColumns. Exactly one row has state [StateMeta], whose columns are:
//   - message_id: the snapshot of the read.
//   - id: the lowest running transaction, or, if the database reports no snapshot, a number that
//     stands for all of them.
//   - key_hash: if the params ask for a mark, a transaction that started after all that this read
//     could have seen (see package drain, watermark.go).
//   - lane: the number of lanes without a holder.
//   - attempts: the number of live members of the spool.
//   - starts: the version of the spool's settings by operators (-1 if the spool does not exist).
//   - created_at: the time.
//   - topic: the incarnation of the database (see package drain, restored.go).
//   - size: if the database reports it, the highest id that was given to a message before that
//     transaction.
//   - metadata: on MySQL, if the params ask for a mark, the highest id of a stored message from
//     LookFrom on.
func (s *Statements) Fetch(p FetchParams) Query { return s.lists.fetch(p) }

// Remove deletes messages whose lane is still held under the token of their ref.
func (s *Statements) Remove(spool int64, refs []Ref) Query { return s.RemoveWhere(spool, refs, nil) }

// Keep copies messages that are done to the history, under the same guard. Run it before Remove.
func (s *Statements) Keep(spool int64, refs []Ref) Query { return s.lists.keep(spool, refs) }

// Lock locks the rows of messages until the transaction ends, except rows that another transaction
// has locked. It returns the ids of the messages that it locked. It does not wait for locks.
func (s *Statements) Lock(spool int64, refs []Ref) Query {
	return s.of("Find", "lock").with(s.lists.refs(spool, refs))
}

// Find returns the ids of messages that exist, locked or not.
func (s *Statements) Find(spool int64, refs []Ref) Query {
	return s.query("Find", s.lists.refs(spool, refs))
}

// Impatiently returns the statement in a form that gives up after about a second if it waits for a
// lock, on servers that would continue to wait after a client has given up. On other databases it
// is the same statement.
func (s *Statements) Impatiently(query Query) Query {
	query.Text = s.Impatient + query.Text
	return query
}

// LockAsRead locks messages that are as they were read, whose lane is held under their token, and
// which no other transaction has locked. It returns their ids. It does not wait for locks: after a
// client has given up, MySQL's server continues to wait for a lock, and keeps the locks that it
// holds.
func (s *Statements) LockAsRead(spool int64, messages []AsRead) Query {
	return s.of("FindAsRead", "lock").with(s.lists.asRead(spool, messages))
}

// StandingAsRead returns the ids of messages that LockAsRead would lock, and of those that another
// transaction has locked.
func (s *Statements) StandingAsRead(spool int64, messages []AsRead) Query {
	return s.query("FindAsRead", s.lists.asRead(spool, messages))
}

// CountStarts adds one to the starts of messages that LockAsRead has locked. It returns only the
// number of changed rows, not which rows.
func (s *Statements) CountStarts(spool int64, messages []AsRead) Query {
	return s.query("CountStarts", s.lists.asRead(spool, messages))
}

// TakeBackStarts takes back a counted start of each message, in any state of the message and under
// any token of its lane: a message that came back has not crashed its process, whichever process
// holds its lane by now. Run twice, it may take back the start of another process, which costs the
// crash guard one start.
func (s *Statements) TakeBackStarts(spool int64, refs []Ref) Query {
	return s.query("TakeBackStarts", s.lists.refs(spool, refs))
}

// Release gives lanes back.
func (s *Statements) Release(spool int64, holder string, lanes []int) Query {
	list := make([]int64, len(lanes))
	for i, lane := range lanes {
		list[i] = int64(lane)
	}
	return s.query("Release", args{"spool": spool, "holder": holder, "lanes": s.lists.numbers(list)})
}

// AsRead is a message with the state that a process has read. Statements that change it require the
// same attempts and starts, so that, run twice, they change it once.
type AsRead struct {
	Ref
	Attempts int
	// LeastStarts and MostStarts bound the starts. The number may have decreased, if the message
	// came back to the previous holder of its lane.
	LeastStarts, MostStarts int
}

// LoadPayload returns payload and metadata of a message.
func (s *Statements) LoadPayload(spool int64, r Ref) Query {
	return s.query("LoadPayload", args{"spool": spool, "state": r.State, "lane": r.Lane, "id": r.ID, "created_at": r.CreatedAt})
}
