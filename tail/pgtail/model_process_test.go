package pgtail_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

const (
	// modelAttempts is how many attempts a message has, and how many processes it may end.
	modelAttempts = 3
	// modelLease outlasts what a busy machine does to a test. The leases of a process that was
	// killed are ended by the model.
	modelLease = 15 * time.Second
)

// modelProcess is a forwarder of the model with connections of its own, which can be ended as if
// the process had been killed.
type modelProcess struct {
	*history

	name, kind string
	log        *logger
	valve      *valve
	db         *sql.DB
	cancel     context.CancelFunc
	ended      chan error
	holder     string // its name in the tables

	gone   bool // it was stopped or killed
	killed bool // of the judge: nothing that it does counts any more
	// spared are the messages, of the judge, of calls that came back before their turn.
	spared map[string]bool
}

// kinds are the ways in which a forwarder finds messages.
var kinds = []string{"tail", "polling"}

// spawn starts a process.
func (h *history) spawn(kind string) *modelProcess {
	h.Helper()
	h.processes++
	p := &modelProcess{history: h, name: fmt.Sprint("p", h.processes), kind: kind, log: &logger{}, ended: make(chan error, 1)}
	h.say("start %s, %s", p.name, kind)
	var dsn string
	p.valve, dsn = h.newValve()
	database := *h.Database
	database.DSN = dsn
	p.db = database.Open(h.T)
	config := forwarder.Config{
		Retry:    postbox.RetryProfile{Base: time.Millisecond, Cap: 5 * time.Millisecond, Attempts: modelAttempts},
		Tuning:   postbox.Tuning{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond, ProbeMin: time.Millisecond, ProbeMax: 10 * time.Millisecond, Lease: modelLease, CloseTimeout: 5 * time.Second},
		Classify: classify, BatchSize: []int{1, 4}[h.draw(2, "batches")],
	}
	var err error
	if kind == "tail" {
		config.Tail, err = pgtail.New(pgtail.Config{DSN: dsn, Publication: h.publication()})
		require.NoError(h, err)
	}
	on := database.On(p.db)
	on.Metrics = h.recorder
	f, err := forwarder.New(on, p, config, p.log)
	require.NoError(h, err)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	before := h.holders()
	go func() { p.ended <- f.Run(ctx) }()
	h.Cleanup(func() { // of a history that has failed
		cancel()
		p.valve.end()
		_ = f.Close()
		p.valve.close()
	})
	h.alive = append(h.alive, p)
	h.until(func() bool {
		for _, holder := range h.holders() {
			if !slices.Contains(before, holder) {
				p.holder = holder
			}
		}
		return p.holder != "" || p.gone
	}, "it has joined the others")
	return p
}

// holders are the processes that share the lanes.
func (h *history) holders() []string {
	h.Helper()
	var holders string
	require.NoError(h, h.DB.QueryRowContext(h.Context(), "SELECT COALESCE(string_agg(holder, ','), '') FROM postbox_members").Scan(&holders))
	return strings.Split(holders, ",")
}

// mustRun fails the test if the process has ended by itself.
func (p *modelProcess) mustRun() {
	p.Helper()
	select {
	case err := <-p.ended:
		p.Fatalf("%s has ended by itself: %v", p.name, err)
	default:
	}
}

// stop ends a process in order.
func (p *modelProcess) stop() {
	p.Helper()
	p.say("stop %s", p.name)
	p.valve.hold(false)
	p.cancel()
	select {
	case err := <-p.ended:
		p.leave()
		_ = p.db.Close()          // an error if the model has cut one of its connections
		if !p.judge.isKilled(p) { // by a message, meanwhile
			require.NoError(p, err, p.name)
		}
	case <-time.After(patience):
		p.Fatalf("%s does not end", p.name)
	}
	p.gone = true
	p.valve.close()
}

// kill ends a process at once, with whatever it does.
func (p *modelProcess) kill() {
	p.say("kill %s", p.name)
	p.judge.kill(p)
	p.bury()
}

// bury notes that a process was killed. Its leases end.
func (p *modelProcess) bury() {
	p.leave()
	p.cancel()
	if !p.gone {
		p.gone, p.dead = true, append(p.dead, p)
	}
	p.expire()
}

// leave takes the process from those that run.
func (p *modelProcess) leave() {
	p.alive = slices.DeleteFunc(p.alive, func(other *modelProcess) bool { return other == p })
}

// expire ends the leases of processes that were killed. A statement that was under way may have
// renewed them since.
func (h *history) expire() {
	var holders []string
	for _, p := range h.alive {
		if p.holder == "" {
			return // one is about to get leases
		}
		holders = append(holders, p.holder)
	}
	h.Exec(h.T, "UPDATE postbox_members SET expires_at = 0 WHERE expires_at > 0 AND NOT holder = ANY (string_to_array(?, ','))", strings.Join(holders, ","))
}

// forget waits until the goroutines have ended of processes that were killed: in all they do, no
// server answers.
func (m *model) forget() {
	for _, p := range m.dead {
		select {
		case <-p.ended: //nolint:errcheck // it could reach no server
		case <-time.After(patience):
			m.Fatalf("%s was killed and does not end", p.name)
		}
		_ = p.db.Close()
		p.valve.close()
	}
	m.dead = nil
}

// hold stops a process for a while, as a busy machine does. It may have a lock that others wait
// for, so it goes on by itself.
func (p *modelProcess) hold() {
	p.say("hold %s", p.name)
	p.judge.disturb()
	p.valve.hold(true)
	time.AfterFunc(holdMost, func() { p.valve.hold(false) })
}

// Publish is what the forwarder of the process calls.
func (p *modelProcess) Publish(topic string, messages ...*message.Message) error {
	for i, msg := range messages {
		if err := p.judge.publish(p, topic, msg); err != nil {
			p.judge.excuse(messages[:i]) // they come again
			p.judge.spare(p, messages[i+1:])
			return err
		}
	}
	return nil
}

// Close has nothing to do.
func (*modelProcess) Close() error { return nil }

var errOutage = errors.New("broker is away")

func classify(err error) postbox.ErrorClass {
	if errors.Is(err, errOutage) {
		return postbox.Outage
	}
	return postbox.Unclassified
}

// until waits for a condition, and sees to it that the processes do not keep it from coming.
func (h *history) until(condition func() bool, what string) {
	h.Helper()
	ticker := time.NewTicker(testdb.PollPause)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); ; {
		h.check()
		if condition() {
			return
		}
		if time.Now().After(deadline) {
			h.Fatalf("it takes too long until %s: %s", what, h.judge.missing())
		}
		<-ticker.C
	}
}
