package pgtail_test

import (
	"database/sql"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// The model lets real forwarders and producers do random things on a real server, one history after
// the other, and knows what the broker may get of each message, and when. Forwarders poll, or read
// rows from the log, several at a time. They end, are killed, are held, and lose their connection
// to the log. At the end of a history nothing is wrong any more, one forwarder runs, and all that
// was committed must come.
//
// rapid draws the actions. But forwarders run beside them, so a seed tells what was done, and not
// in which order things happened in between: a history that has failed may not fail again, and is
// not made shorter. It is printed instead, with what the broker got.
//
//	model_test.go          the run, and the actions of operators and of the world
//	model_producer_test.go what producers do
//	model_process_test.go  forwarders, and how they end
//	model_judge_test.go    the broker, which judges what it gets
//	model_finale_test.go   the end of a history
//	model_valve_test.go    a proxy that can hold or cut the connections of a process

const (
	// modelChecks histories of modelSteps actions take some ten seconds. make test leaves the model
	// out, and make proof asks for more histories.
	modelChecks, modelSteps = 4, 50
	// modelProcesses run at a time at most.
	modelProcesses = 3
)

// model is a database with what its histories share.
type model struct {
	*world

	operator *admin.Admin
	rows     *forwarder.Publisher
	number   int             // of the history
	dead     []*modelProcess // that were killed, and whose goroutines may still run
}

// history is one run of random actions.
type history struct {
	*model

	rt        *rapid.T
	name      string
	judge     *judge
	alive     []*modelProcess
	processes int // were started
	keys      []*modelKey
	messages  int
	open      []*transaction
}

// -rapid.checks=1000 -rapid.steps=100 is a search for an afternoon.
// Also covers G1, G2, G6, G7, G9, G12, F1, F4, F5 and F15.
func TestModel_G3_of_forwarders_of_the_log(t *testing.T) {
	t.Parallel()
	boundModel()
	m := &model{world: newWorld(t)}
	var err error
	m.operator, err = admin.New(m.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	m.rows, err = forwarder.NewPublisher(m.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	rapid.Check(t, m.run)
	m.forget()
}

// boundModel sets the size of a run, unless the command line does.
func boundModel() {
	for name, value := range map[string]int{"rapid.checks": modelChecks, "rapid.steps": modelSteps} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(strconv.Itoa(value)) // a number is one
		}
	}
}

// run is one history. What fails in it ends the test, since rapid could not repeat it.
func (m *model) run(rt *rapid.T) {
	m.number++
	h := &history{model: m, rt: rt, name: fmt.Sprint("h", m.number), judge: newJudge(m.DB)}
	well := false
	defer func() {
		if !well {
			m.Logf("history %d:\n%s", m.number, strings.Join(h.judge.log, "\n"))
		}
	}()
	for i := range 5 {
		h.keys = append(h.keys, &modelKey{name: fmt.Sprintf("%s-k%d", h.name, i), topic: topics[i%2]})
	}
	h.spawn("tail")
	actions := h.actions()
	rt.Repeat(map[string]func(*rapid.T){
		"": func(*rapid.T) { h.check() },
		"act": func(*rapid.T) {
			h.judge.step()
			actions[h.draw(len(actions), "action")]()
			if h.draw(2, "breathe") == 0 {
				h.breathe()
			}
		},
	})
	h.finale()
	well = true
}

// actions are what may happen. The first ones are drawn more often.
func (h *history) actions() []func() {
	return []func(){
		h.write, h.write, h.write, h.write, h.burst, h.burst, h.commit, h.commit, h.rollBack,
		h.start, h.stop, h.killOne, h.cut, h.takeOver, h.holdOne,
		h.failKey, h.heal, h.heal, h.outage, h.loseAnswers, h.holdKey,
		h.pause, h.resume, h.resume, h.letter, h.bury, h.settle, h.settle,
	}
}

// draw returns a number below n. Small numbers come more often.
func (h *history) draw(n int, what string) int { return rapid.IntRange(0, n-1).Draw(h.rt, what) }

// rarely is true once in about n times.
func (h *history) rarely(n int, what string) bool { return h.draw(n, what) == n/2 }

func (h *history) say(format string, args ...any) { h.judge.say(format, args...) }

// check fails the test if something was wrong since the last check.
func (h *history) check() {
	h.Helper()
	for _, p := range h.judge.takeFallen() {
		h.say("%s was killed by a message, and %s", p.name, h.suspects())
		p.bury()
	}
	for _, p := range h.alive {
		p.mustRun()
	}
	require.NoError(h, h.judge.verdict())
}

// suspects tells what the database knows of the messages that kill processes.
func (h *history) suspects() (known string) {
	h.Helper()
	const query = "SELECT COALESCE(string_agg(convert_from(message_id, 'UTF8') || ' of lane ' || lane || ' has ' || starts || ' starts', ', '), 'no starts are counted') || " +
		"(SELECT '; suspect are lanes ' || COALESCE(string_agg(lane::text, ', '), 'none') FROM postbox_lanes WHERE suspect > 0) FROM postbox_messages WHERE starts > 0"
	require.NoError(h, h.DB.QueryRowContext(h.Context(), query).Scan(&known))
	return known
}

// one returns a process that is alive, nil if there is none.
func (h *history) one() *modelProcess {
	if len(h.alive) == 0 {
		return nil
	}
	return h.alive[h.draw(len(h.alive), "process")]
}

func (h *history) start() {
	if len(h.alive) < modelProcesses {
		h.spawn(kinds[h.draw(len(kinds), "kind")])
	}
}

func (h *history) stop() {
	if p := h.one(); p != nil {
		p.stop()
	}
}

func (h *history) killOne() {
	if p := h.one(); p != nil {
		p.kill()
	}
}

func (h *history) holdOne() {
	if p := h.one(); p != nil {
		p.hold()
	}
}

// cut ends the connections that send the log.
func (h *history) cut() {
	h.say("cut the connections that send the log")
	h.judge.disturb()
	h.world.cut()
}

// takeOver lets another process take the log over from one that is publishing.
func (h *history) takeOver() {
	if len(h.alive) >= modelProcesses {
		return
	}
	k := h.keys[0]
	h.judge.hold(k.name)
	h.writeOne(k)
	if h.draw(2, "await") == 0 {
		h.soon(func() bool { return h.judge.waiting() })
	}
	h.cut()
	if p := h.one(); p != nil && h.draw(3, "hold") == 0 {
		p.hold()
	}
	h.soon(h.slotIsFree) // or the next one would look again a second later only
	p := h.spawn("tail")
	if h.draw(2, "work") == 0 { // before the first one knows
		h.soon(func() bool { return p.log.count("Postbox reads the log") > 0 })
		h.writeOne(h.keys[2])
		h.breathe()
	}
}

func (h *history) failKey() {
	k := h.key()
	h.say("the broker fails for %s", k.name)
	h.judge.change(func() { h.judge.failing[k.name] = true })
}

func (h *history) outage() {
	h.say("the broker is away")
	h.judge.change(func() { h.judge.away = true })
}

func (h *history) heal() {
	h.say("the broker is well")
	h.judge.change(func() { clear(h.judge.failing); h.judge.away, h.judge.lossy = false, 0 })
}

func (h *history) loseAnswers() {
	n := 1 + h.draw(3, "answers")
	h.say("%d answers get lost", n)
	h.judge.change(func() { h.judge.lossy = n })
}

func (h *history) holdKey() {
	k := h.key()
	h.say("calls with %s take long", k.name)
	h.judge.hold(k.name)
}

// pause lets an operator pause something. No message that is written later may be published.
func (h *history) pause() {
	ctx, target, k := h.Context(), admin.Outbox("outbox"), h.key()
	var what string
	var err error
	switch h.draw(3, "pause") {
	case 0:
		what, err = k.name, h.operator.Pause(ctx, admin.Filter{Target: target, Key: k.name})
	case 1:
		what, err = k.topic, h.operator.Pause(ctx, admin.Filter{Target: target, Topic: k.topic})
	default:
		what, err = "outbox", h.operator.Pause(ctx, admin.Filter{Target: target, All: true})
	}
	require.NoError(h, err)
	h.say("%s is paused", what)
	now := h.judge.step()
	h.judge.change(func() {
		if h.judge.paused[what] == 0 {
			h.judge.paused[what] = now
		}
	})
}

// resume lets an operator resume everything.
func (h *history) resume() {
	ctx, target := h.Context(), admin.Outbox("outbox")
	var paused []string
	h.judge.change(func() {
		for what := range h.judge.paused {
			paused = append(paused, what)
		}
		clear(h.judge.paused)
	})
	h.say("resume %v", paused)
	for _, what := range paused {
		switch what {
		case "outbox":
			require.NoError(h, h.operator.Resume(ctx, admin.Filter{Target: target, All: true}))
		case topics[0], topics[1]:
			require.NoError(h, h.operator.Resume(ctx, admin.Filter{Target: target, Topic: what}))
		default:
			require.NoError(h, h.operator.Resume(ctx, admin.Filter{Target: target, Key: what}))
		}
	}
}

// letter lets an operator requeue a dead letter, perhaps one whose reason is gone, or delete it.
func (h *history) letter() {
	for id, m := range h.letters() {
		switch h.draw(4, "letter") {
		case 0:
			h.say("delete the dead letter of %s", m.id)
			h.judge.change(func() { m.died, m.pardoned, m.deleted = true, true, true })
			require.NoError(h, errorOf(h.operator.Delete(h.Context(), admin.Filter{ID: id})))
		case 1:
			h.requeue(id, m, false)
		default:
			h.requeue(id, m, true)
		}
		return
	}
}

func (h *history) requeue(id int64, m *posted, cured bool) {
	h.say("requeue %s, cured: %t", m.id, cured)
	h.judge.change(func() {
		m.died, m.pardoned = true, true
		m.excused++
		m.deaths = 0 // it has all its attempts again
		if cured {
			m.poison, m.deadly = false, false
		}
	})
	require.NoError(h, errorOf(h.operator.Requeue(h.Context(), admin.Filter{ID: id}, admin.Again{})))
}

// letters returns the dead letters by their ids.
func (h *history) letters() map[int64]*posted {
	h.Helper()
	rows, err := h.DB.QueryContext(h.Context(), "SELECT id, message_id FROM postbox_dead_letters")
	require.NoError(h, err)
	defer func() { _ = rows.Close() }()
	letters := map[int64]*posted{}
	for rows.Next() {
		var id int64
		var message []byte
		require.NoError(h, rows.Scan(&id, &message))
		h.judge.change(func() { letters[id] = h.judge.messages[string(message)] })
		require.NotNil(h, letters[id], "dead letter of %s", message)
	}
	require.NoError(h, rows.Err())
	return letters
}

// bury lets an operator make a message that has a row a dead letter. It may be published as well at
// that moment.
func (h *history) bury() {
	var id int64
	var message []byte
	if err := h.DB.QueryRowContext(h.Context(), "SELECT id, message_id FROM postbox_messages ORDER BY id LIMIT 1").Scan(&id, &message); err != nil {
		require.ErrorIs(h, err, sql.ErrNoRows)
		return
	}
	h.say("bury %s", message)
	h.judge.change(func() {
		m := h.judge.messages[string(message)]
		m.died, m.pardoned = true, true
	})
	if _, err := h.operator.Bury(h.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: id}, "the model"); err != nil {
		require.ErrorIs(h, err, admin.ErrNotFound)
	}
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }
