package crashpoints_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
)

// fault is what goes wrong at a point.
type fault string

const (
	// crashBefore ends the process before the call has reached the other side.
	crashBefore fault = "crash before"
	// crashAfter ends the process when the call has had its effect, and before it hears so.
	crashAfter fault = "crash after"
	// lostBefore breaks the connection before the call has reached the server. The process lives
	// on.
	lostBefore fault = "connection lost before"
	// lostAfter breaks it when the call has had its effect.
	lostAfter fault = "connection lost after"
)

func (f fault) fatal() bool { return f == crashBefore || f == crashAfter }

// effective says whether the call takes effect.
func (f fault) effective() bool { return f == crashAfter || f == lostAfter }

// point is one call of a process: the nth that looks like this one. Counting those that look alike,
// and not all calls, keeps points apart where goroutines take turns in another order.
type point struct {
	call string
	nth  int
	// lasts: the call may have an effect that outlives the process, unlike a read, or a statement
	// in a transaction.
	lasts bool
}

func (p point) String() string { return fmt.Sprintf("%s #%d", p.call, p.nth) }

// errDead is the answer to whatever a dead process asks for.
var errDead = errors.New("this process has crashed")

// fate lets all calls of one process through, one at a time, until its own point comes.
type fate struct {
	at    point
	fault fault // none: an unharmed life

	mu     sync.Mutex
	seen   map[string]int
	points []point // all that were passed
	struck bool
	dead   bool
	open   map[*conn]struct{}
	end    context.CancelFunc // of the process, when it dies
}

func newFate(at point, f fault) *fate {
	return &fate{at: at, fault: f, seen: map[string]int{}, open: map[*conn]struct{}{}}
}

// call is one call to the database, the broker or a handler: do has the effect. c is the connection
// that it takes, if any.
func (f *fate) call(what string, c *conn, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errDead
	}
	f.seen[what]++
	now := point{what, f.seen[what], c == nil || c.lasting(what)}
	f.points = append(f.points, now)
	if f.fault == "" || f.struck || what != f.at.call || now.nth != f.at.nth {
		return do()
	}
	f.struck = true
	if f.fault.effective() {
		_ = do() // nobody hears of it
	}
	if !f.fault.fatal() {
		if c != nil {
			c.cut()
		}
		return io.ErrUnexpectedEOF
	}
	f.dead = true
	for c := range f.open {
		c.cut()
	}
	f.end()
	return errDead
}

func (f *fate) hasStruck() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.struck
}

func (f *fate) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// passed returns the points of the life so far.
func (f *fate) passed() []point {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]point(nil), f.points...)
}

var (
	digits    = regexp.MustCompile(`[0-9]+`)
	arguments = regexp.MustCompile(`\?(, \?)+`)
)

// shown is how much of a statement names it.
const shown = 72

// statementNames are the names that were given, by verb and text: to find one takes as long as a
// short query.
var statementNames sync.Map

// statement names a statement, whatever the number of its arguments, and of its savepoint.
func statement(verb, text string) string {
	whole := [2]string{verb, text}
	if name, known := statementNames.Load(whole); known {
		return name.(string) //nolint:forcetypeassert // nothing else is stored there
	}
	text = digits.ReplaceAllString(strings.Join(strings.Fields(text), " "), "N")
	text = arguments.ReplaceAllString(text, "?, …")
	name := verb + " " + text[:min(len(text), shown)]
	statementNames.Store(whole, name)
	return name
}
