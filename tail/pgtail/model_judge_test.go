package pgtail_test

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// posted is a message that was written, and what became of it.
type posted struct {
	id, key, topic string
	delayed, large bool
	poison         bool // the broker refuses it
	deadly         bool // it ends each process that publishes it

	// Times are numbers of steps.
	begun     int // when it was written
	committed int // when its transaction was committed; 0: it was not
	place     int // in its transaction

	published int
	excused   int  // how often the forwarder may publish it again, since it got no answer or since an operator said so
	disturbed int  // how many processes had been disturbed when it was written
	kills     int  // how many processes had been killed then
	deaths    int  // how many processes it has killed
	failures  int  // how often it was refused, for a reason that says nothing
	died      bool // it was a dead letter, or an operator may have made it one
	pardoned  bool // what made it a dead letter may be something that an operator did
	deleted   bool // an operator has deleted its dead letter
}

// judge is the broker. It knows what was committed, and what may be published when.
type judge struct {
	db *sql.DB

	mu        sync.Mutex
	now       int // steps
	messages  map[string]*posted
	keys      map[string][]*posted // in the order in which they were written
	paused    map[string]int       // what operators have paused, and when
	failing   map[string]bool      // keys
	away      bool
	lossy     int // so many answers get lost
	held      map[string]chan struct{}
	calls     int // that wait there
	answered  int // calls
	disturbed int // processes that were killed, held, or lost their connection to the log
	kills     int
	fallen    []*modelProcess // killed by messages
	log       []string
	wrong     string // the first violation
}

func newJudge(db *sql.DB) *judge {
	return &judge{
		db: db, messages: map[string]*posted{}, keys: map[string][]*posted{}, paused: map[string]int{}, failing: map[string]bool{}, held: map[string]chan struct{}{},
	}
}

// say adds a line to the history.
func (j *judge) say(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(format, args...)
}

// note is say while the judge is locked.
func (j *judge) note(format string, args ...any) {
	j.log = append(j.log, fmt.Sprintf("%4d  ", j.now)+fmt.Sprintf(format, args...))
}

// violation notes the first one.
func (j *judge) violation(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.note("VIOLATION: %s", text)
	if j.wrong == "" {
		j.wrong = text
	}
}

// step begins a step, and returns its number.
func (j *judge) step() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now++
	return j.now
}

// write notes a message that is being written.
func (j *judge) write(m *posted) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now++
	m.begun, m.disturbed, m.kills = j.now, j.disturbed, j.kills
	j.messages[m.id] = m
	j.keys[m.key] = append(j.keys[m.key], m)
}

// commit notes that a transaction is being committed. From now on its messages may be published.
func (j *judge) commit(written []*posted) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now++
	for i, m := range written {
		m.committed, m.place = j.now, i
	}
}

// publish takes a message, or does what is wrong with the broker.
func (j *judge) publish(p *modelProcess, topic string, msg *message.Message) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.messages[msg.UUID]
	switch {
	case m == nil:
		if !p.killed {
			j.violation("%s publishes %s, which was not written", p.name, msg.UUID)
		}
		return nil
	case m.committed == 0:
		j.violation("%s publishes %s, which was not committed", p.name, m.id)
	case m.topic != topic || len(msg.Payload) < len(m.id) || string(msg.Payload[:len(m.id)]) != m.id:
		j.violation("%s publishes %s with the topic %q and another payload, or to the wrong topic", p.name, m.id, topic)
	}
	if gate := j.held[m.key]; gate != nil {
		j.note("%s waits with %s", p.name, m.id)
		j.calls++
		j.mu.Unlock()
		select {
		case <-gate:
		case <-msg.Context().Done():
		}
		j.mu.Lock()
		j.calls--
	}
	if p.killed {
		return errOutage // the answer goes nowhere
	}
	if err := msg.Context().Err(); err != nil {
		return err
	}
	j.answered++
	if err := j.refuse(p, m); err != nil {
		j.note("%s is refused %s: %v", p.name, m.id, err)
		return err
	}
	j.accept(p, m)
	if j.lossy > 0 {
		j.lossy--
		m.excused++
		j.note("%s gets no answer for %s", p.name, m.id)
		return errOutage
	}
	return nil
}

// spare notes messages of a call that came back before their turn. The forwarder cannot know that,
// and does not suspect them any more: the next start of theirs in that process is not counted.
func (j *judge) spare(p *modelProcess, messages []*message.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, msg := range messages {
		if p.spared == nil {
			p.spared = map[string]bool{}
		}
		p.spared[msg.UUID] = true
	}
}

// refuse returns the error for a message that the broker does not take.
func (j *judge) refuse(p *modelProcess, m *posted) error {
	switch {
	case m.deadly:
		if !p.spared[m.id] {
			m.deaths++
		}
		p.killed = true
		p.valve.end()
		j.disturbed++
		j.kills++
		j.fallen = append(j.fallen, p)
		if m.deaths > modelAttempts+1 { // one start that is not suspected, and those that are counted
			j.violation("%s has killed %d processes", m.id, m.deaths)
		}
		return errOutage
	case m.poison:
		return postbox.Permanent(errBroker)
	case j.away:
		return errOutage
	case !j.failing[m.key]:
		return nil
	case m.failures == 0: // one failure is no reason for a dead letter, whatever else happens to it
		m.failures++
		return errBroker
	default:
		return errOutage
	}
}

// accept takes a message, and judges whether it may come now.
func (j *judge) accept(p *modelProcess, m *posted) {
	j.note("%s publishes %s", p.name, m.id)
	for what, since := range j.paused {
		if since < m.begun && (what == "outbox" || what == m.topic || what == m.key) {
			j.violation("%s is published, which was written after %s was paused", m.id, what)
		}
	}
	if m.published == 0 && !m.delayed && !m.died {
		for _, x := range j.keys[m.key] {
			if x.before(m) && x.published == 0 && !x.died && !j.isDead(x) {
				j.violation("%s is published before %s", m.id, x.id)
			}
		}
	}
	if m.published++; m.published > 1+m.excused+j.disturbed-m.disturbed {
		j.violation("%s is published %d times", m.id, m.published)
	}
}

// before says whether a message must come before another one of its key, in the same topic: it was
// committed before the other one was written.
func (m *posted) before(other *posted) bool {
	switch {
	case m == other || m.committed == 0 || m.topic != other.topic || m.delayed:
		return false
	case m.committed == other.committed:
		return m.place < other.place
	}
	return m.committed < other.begun
}

// isDead says whether a message is a dead letter.
func (j *judge) isDead(m *posted) bool {
	var is bool
	err := j.db.QueryRow("SELECT EXISTS (SELECT 1 FROM postbox_dead_letters WHERE message_id = $1)", []byte(m.id)).Scan(&is) //nolint:noctx // it is a publisher that asks
	if err != nil {
		j.violation("look for the dead letter of %s: %v", m.id, err)
	}
	m.died = is
	return is
}

// excuse lets messages be published once more.
func (j *judge) excuse(messages []*message.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, msg := range messages {
		if m := j.messages[msg.UUID]; m != nil {
			m.excused++
		}
	}
}

// disturb notes something after which messages may be published once more.
func (j *judge) disturb() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.disturbed++
}

// kill lets nothing count any more that a process does.
func (j *judge) kill(p *modelProcess) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p.killed = true
	j.disturbed++
	j.kills++
	p.valve.end()
}

func (j *judge) isKilled(p *modelProcess) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return p.killed
}

// takeFallen returns the processes that messages have killed since the last call.
func (j *judge) takeFallen() (fallen []*modelProcess) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fallen, j.fallen = j.fallen, nil
	return fallen
}

// holdMost is for how long a call of the broker takes at most, or a process is held, so that
// nothing waits for long. A forwarder waits for a call for 5 s.
const holdMost = time.Second

// hold lets calls with messages of a key wait.
func (j *judge) hold(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.held[key] == nil {
		gate := make(chan struct{})
		j.held[key] = gate
		time.AfterFunc(holdMost, func() { j.release(key, gate) })
	}
}

// release lets calls go on.
func (j *judge) release(key string, gate chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.held[key] == gate && gate != nil {
		delete(j.held, key)
		close(gate)
	}
}

func (j *judge) releaseAll() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, gate := range j.held {
		delete(j.held, key)
		close(gate)
	}
}

// change changes what the broker or operators do.
func (j *judge) change(do func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	do()
}

// calm says whether all messages are published sooner or later, without more help.
func (j *judge) calm() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.messages {
		if m.deadly && m.committed > 0 && !m.died {
			return false
		}
	}
	return len(j.paused) == 0 && len(j.failing) == 0 && !j.away
}

// missing returns which committed messages were not published. It leaves out those that are dead,
// or must become it.
func (j *judge) missing() (ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, messages := range j.keys {
		for _, m := range messages {
			if m.committed > 0 && m.published == 0 && !m.poison && !m.deadly && !m.died {
				ids = append(ids, m.id)
			}
		}
	}
	return ids
}

// handled returns how many calls there were.
func (j *judge) handled() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.answered
}

// waiting says whether a call waits.
func (j *judge) waiting() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.calls > 0
}

// decided says whether all messages have a dead letter that must become one.
func (j *judge) decided(letters map[string]bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.messages {
		if m.committed > 0 && m.published == 0 && !m.deleted && !letters[m.id] {
			return false
		}
	}
	return true
}

// done says whether everything is published.
func (j *judge) done() bool { return j.decided(nil) }

// accuse judges whether a message may be a dead letter.
func (j *judge) accuse(m *posted) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !m.poison && !m.deadly && !m.pardoned && m.failures+j.kills-m.kills < modelAttempts {
		j.violation("%s is a dead letter, and nothing was wrong with it", m.id)
	}
}

// verdict returns the first violation.
func (j *judge) verdict() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wrong != "" {
		return errors.New(j.wrong)
	}
	return nil
}
