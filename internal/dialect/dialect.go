// Package dialect holds the SQL text of Postbox, one file a database, and nothing that executes it.
//
// Statements are written with ? for each argument and {name} for each table; both are replaced once,
// when a [Statements] is made. What every database understands is in common.go; each database's own
// file holds its clock, its migrations and the statements in which it differs. Times are microseconds
// since 1970 in UTC, as integers, on every database: no driver setting, session time zone or summer
// time can change what they mean.
package dialect

import (
	"errors"
	"fmt"
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
	// StateReady may be handled as soon as its turn comes.
	StateReady = 0
	// StateScheduled waits for the time its producer asked for; it holds no other message back.
	StateScheduled = 1
	// StateRetrying failed and waits for its next attempt; it holds back later messages of its key.
	StateRetrying = 2
	// StateMeta marks the row of a fetch that is no message: see [Statements.Fetch].
	StateMeta = -1
)

// MaxLanes keeps a fetch, which has a part for each lane, within SQLite's limit on compound statements.
const MaxLanes = 256

// ParkedFrom is the due time in microseconds from which on a retrying message is parked: it waits for an operator, and
// its key behind it. ParkDelay, added to any time, is beyond.
const (
	ParkedFrom = 1 << 62
	ParkDelay  = ParkedFrom
)

// Origins of a dead letter.
const (
	// OriginSpool is a message that this database stored and could not get rid of.
	OriginSpool = 0
	// OriginInbox is a message that came from a broker and whose handler kept failing.
	OriginInbox = 1
)

// Query is a statement with its arguments.
type Query struct {
	Text string
	Args []any
	// Once is set for a text that depends on the number of rows and is not worth keeping prepared.
	Once bool
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

// Ref names a stored message together with the fencing token under which its lane is held. The id alone does not
// name a message: a database that is restored or promoted gives out ids again, but not at the same microsecond.
type Ref struct {
	State     int
	Lane      int
	Token     int64
	ID        int64
	CreatedAt int64 // the row's created_at
}

// Started is a message whose start is counted, with the number of those that were counted before.
type Started struct {
	Ref
	Before int
}

// Cursor says from which id on a lane is read.
type Cursor struct {
	Lane  int
	After int64
}

// FetchParams bounds one read of a spool.
type FetchParams struct {
	Spool    int64
	Cursors  []Cursor        // lanes to read
	PerLane  int             // ready messages a lane at most
	UpTo     int64           // if not 0: all ready messages up to this id, whatever PerLane says; then all cursors have the same After
	Due      int             // scheduled and retrying messages that are due, over all these lanes, at most
	Inline   int             // payloads up to this many bytes come along, larger ones as NULL
	Known    map[int][]Known // messages that the caller has already, by lane
	Excluded []string        // topics that are not wanted now
	Mark     bool            // the transaction to start next is wanted
	// Unordered lets messages of a key pass one that waits for another attempt.
	Unordered bool
	// PausedKeys says that there are some.
	PausedKeys bool
	// Held are hashes of keys that the caller knows to wait, and whose messages are not wanted now.
	Held []int64
}

// Known is a message that the caller of a fetch has already.
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

// nameBits is how much of its id a message's name has, beside its time.
const nameBits = 20

// nameInSQL is the number that names a message by its id and its time, as each database reckons it. Comparing one number costs a
// lookup in a hash or a tree. A pair costs several times as much on PostgreSQL, and a walk through the whole list on SQLite. Two messages have the
// same name only if they were stored in the same microsecond, with a million others between them.
var nameInSQL = fmt.Sprintf("((m.created_at << %d) | (m.id & %d))", nameBits, 1<<nameBits-1)

// name is that number.
func (k Known) name() uint64 {
	return uint64(k.CreatedAt)<<nameBits | uint64(k.ID)&(1<<nameBits-1) //nolint:gosec // the bits are meant
}

// signedNames lists names for databases whose numbers have a sign, names for MySQL, where the result of a shift has none.
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

// variant is the index in turns.
func (p FetchParams) variant() int {
	variant := 0
	if p.Unordered {
		variant++
	}
	if p.PausedKeys {
		variant += 2
	}
	if len(p.Held) > 0 {
		variant += 4
	}
	return variant
}

// lists are the statements whose shape depends on the number of their arguments.
type lists interface {
	append(spool int64, rows []Row) []Query
	ingest(spool int64, claims [][]byte, rows []Row) Ingest
	fetch(p FetchParams) Query
	sweep(p SweepParams) Query
	remove(spool int64, refs []Ref) Query
	keep(spool int64, refs []Ref) Query
	lock(spool int64, refs []Ref) Query
	find(spool int64, refs []Ref) Query
	standing(spool int64, refs []Ref) Query
	lockStarts(spool int64, started []Started) Query
	countStarts(spool int64, started []Started) Query
	release(spool int64, holder string, lanes []int) Query
}

// Check returns an error unless the kind is one of those above.
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

// For checks what a user says of a database, and returns the statements for it. The error names all that is wrong.
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

// Append inserts rows into a spool, in their order and in that of the queries.
func (s *Statements) Append(spool int64, rows []Row) []Query { return s.lists.append(spool, rows) }

// Fetch reads what the lanes have to do: ready messages after each lane's cursor in the order of their
// ids, without those that stand behind a retrying message of their key, then messages that are due. Its
// columns are those of fetchColumns. Exactly one row has state [StateMeta]; there message_id is the
// snapshot of the read, and id the lowest transaction that runs, or, where the database tells of no snapshot, one that stands for
// all that run. key_hash is, where the params ask for a mark, a transaction that started after all that this read could have met
// (see package drain, watermark.go). lane is the number of lanes without a holder, attempts the number of live members of the spool, starts the
// version of what operators say of it (-1 if the spool is not there), created_at the time, topic the incarnation of the database
// (see package drain, restored.go), and size, where the database tells it, the highest id that was given to a message before that transaction.
func (s *Statements) Fetch(p FetchParams) Query { return s.lists.fetch(p) }

// Remove deletes messages whose lane is still held under the token of their ref.
func (s *Statements) Remove(spool int64, refs []Ref) Query { return s.lists.remove(spool, refs) }

// Keep copies messages that are done to the history, under the same guard. Run it before Remove.
func (s *Statements) Keep(spool int64, refs []Ref) Query { return s.lists.keep(spool, refs) }

// Lock locks the rows of messages until the transaction ends, but for those that another transaction has locked, and returns the ids
// of those that it locked. It does not wait for locks.
func (s *Statements) Lock(spool int64, refs []Ref) Query { return s.lists.lock(spool, refs) }

// Find returns the ids of messages that are there, locked or not.
func (s *Statements) Find(spool int64, refs []Ref) Query { return s.lists.find(spool, refs) }

// Impatiently returns the statement in a form that gives up after about a second when it waits for a lock, where the server goes on
// waiting after a client has given up. Elsewhere it is the same statement.
func (s *Statements) Impatiently(query Query) Query {
	query.Text = s.Impatient + query.Text
	return query
}

// LockStarts locks those messages whose lane is held under their token, whose starts are as many as before, and which
// no other transaction has locked. It returns their ids, and does not wait for locks: MySQL's server goes on waiting for a lock, and holds
// those that it has, after a client has given up.
func (s *Statements) LockStarts(spool int64, started []Started) Query {
	return s.lists.lockStarts(spool, started)
}

// CountStarts adds one to the starts of such messages. It does not tell which rows it changed, only how many.
func (s *Statements) CountStarts(spool int64, started []Started) Query {
	return s.lists.countStarts(spool, started)
}

// Release gives lanes back.
func (s *Statements) Release(spool int64, holder string, lanes []int) Query {
	return s.lists.release(spool, holder, lanes)
}
