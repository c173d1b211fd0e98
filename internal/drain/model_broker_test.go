package drain

import (
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// modelBroker is where an outbox's messages go, in some of the runs. Each topic has two parts,
// which may be away each by itself, and its errors do not say whose fault they are.
type modelBroker struct {
	now   time.Time // by which all circuits go
	parts map[modelPart]modelState
	calm  bool // it takes each message that it can
}

// modelPart is one of the two parts of a topic.
type modelPart struct {
	topic string
	part  int
}

// modelState is what a part of a topic is like.
type modelState int

const (
	brokerWell modelState = iota
	brokerAway
	brokerFlaps
)

var (
	errUnknown = errors.New("unclassified broker error")
	errRefused = errors.New("broker says no to this message")
)

// brokerChanges changes what a topic, or a part of it, is like.
func (w *world) brokerChanges() {
	topic := rapid.SampledFrom([]string{"x", "x", "y"}).Draw(w.T, "topic")
	state := rapid.SampledFrom([]modelState{brokerWell, brokerAway, brokerAway, brokerFlaps}).Draw(w.T, "state")
	concerned := rapid.SampledFrom([][]int{{0, 1}, {0}, {1}}).Draw(w.T, "parts")
	w.Logf("parts %v of topic %s are in state %d", concerned, topic, state)
	for _, part := range concerned {
		w.broker.parts[modelPart{topic, part}] = state
	}
}

// clockGoesOn lets time pass for the circuits.
func (w *world) clockGoesOn(pause time.Duration) {
	if w.broker != nil {
		w.broker.now = w.broker.now.Add(pause)
		w.Logf("%s pass", pause)
	}
}

// publishRound advances the clock and publishes all messages that are due. Random actions alone
// rarely reach that state.
func (p *modelProcess) publishRound() {
	if !p.stepping {
		p.passTime()
		p.round(false)
	}
}

// modelOutageLimit is how long unknown failures of the model's broker do not count.
const modelOutageLimit = 24 * time.Hour

// connect gives a process its circuits.
func (w *world) connect(p *modelProcess) {
	config := circuit.Config{FailuresInRow: 3, ProbeMin: 10 * time.Second, ProbeMax: 3 * time.Minute, Width: 4, OutageLimit: modelOutageLimit}
	if w.broker != nil {
		config.Now = func() time.Time { return w.broker.now }
	}
	p.circuits = circuit.New(config, func() {})
	w.circuits = append(w.circuits, p.circuits)
}

// part is where a message goes.
func (m *modelMessage) part() modelPart {
	part := 0
	if m.key == "b" {
		part = 1
	}
	return modelPart{m.topic, part}
}

// answer is what the broker says to a message.
func (w *world) answer(m *modelMessage) error {
	state := w.broker.parts[m.part()]
	if state == brokerAway || m.poison || state == brokerFlaps && rapid.Bool().Draw(w.T, "flaps") {
		return errUnknown
	}
	if w.broker.calm || rapid.IntRange(0, 9).Draw(w.T, "refused") < 9 {
		return nil
	}
	if rapid.Bool().Draw(w.T, "for ever") {
		return postbox.Permanent(errRefused)
	}
	return errRefused
}

// publish gives a batch to the broker, as a relay does, whose circuits decide about failures.
func (p *modelProcess) publish(run *modelRun) {
	run.outcomes = slices.Repeat([]spool.Outcome{{Verdict: spool.Postpone}}, len(run.messages))
	defer p.circuits.End(run.messages[0].Topic, run.call)
	switch {
	case !run.allowed:
	case len(run.messages) == 1 || run.call.Probe:
		run.outcomes[0] = p.publishOne(run.call, run.began, run.messages[0])
	case p.publishAll(run):
	default:
		p.publishOneByOne(run)
	}
}

// publishAll publishes a batch in one call. If the broker does not take one of them, it fails,
// which is nobody's failure yet.
func (p *modelProcess) publishAll(run *modelRun) bool {
	for _, message := range run.messages {
		if p.answer(p.named(message)) != nil {
			return false
		}
	}
	p.arrive(run.call, run.began, run.messages)
	for i := range run.outcomes {
		run.outcomes[i].Verdict = spool.Done
	}
	return true
}

func (p *modelProcess) publishOneByOne(run *modelRun) {
	held := map[int64]bool{}
	for i, message := range run.messages {
		if message.HasKey && held[message.KeyHash] {
			continue
		}
		run.outcomes[i] = p.publishOne(p.circuits.Again(), p.tick(), message)
		held[message.KeyHash] = run.outcomes[i].Verdict != spool.Done
		if p.circuits.Open(message.Topic) {
			return
		}
	}
}

// publishOne publishes one message in a call of its own.
func (p *modelProcess) publishOne(call circuit.Call, began int64, message *spool.Message) spool.Outcome {
	m := p.named(message)
	err := p.answer(m)
	switch {
	case err == nil:
		p.arrive(call, began, []*spool.Message{message})
		return spool.Outcome{Verdict: spool.Done}
	case !errors.Is(err, errUnknown):
		return OutcomeOf(err)
	}
	failed := p.seen.add(modelCall{began: began, ended: p.tick(), at: p.broker.now, topic: message.Topic, messages: []spool.Identity{message.Identity()}})
	blame := p.circuits.Failed(message, call, 0)
	p.log("fails to publish %s, which counts: %v", m.name, blame.Counts)
	m.until = p.broker.now
	if blame.Counts {
		require.NoError(p, p.seen.mayCount(failed, modelOutageLimit), m.name)
		return OutcomeOf(err)
	}
	m.until = m.until.Add(blame.After)
	return spool.Outcome{Verdict: spool.Wait, Err: err, After: time.Hour} // by the database's clock: see passTime
}

// arrive notes that messages have got to the broker.
func (p *modelProcess) arrive(call circuit.Call, began int64, messages []*spool.Message) {
	lanes := p.readLanes()
	keys := make([]spool.Identity, len(messages))
	for i, message := range messages {
		m := p.named(message)
		p.log("publishes %s", m.name)
		keys[i] = message.Identity()
		if m.place != pending || m.id != message.Ref.ID {
			continue // it was settled by somebody else
		}
		mine := lanes[message.Ref.Lane].token == message.Ref.Token
		for _, older := range p.messages {
			overtakes := mine && m.key != "" && !p.settings.Unordered && !m.published && p.goesBefore(older, m) && !older.published
			require.False(p, overtakes, "%s gets to the broker before %s", m.name, older.name)
		}
		m.published = true
	}
	p.circuits.Succeeded(messages[0].Topic, call, messages)
	p.seen.add(modelCall{began: began, ended: p.tick(), at: p.broker.now, topic: messages[0].Topic, messages: keys, through: true})
}

// named is what the model knows of a message, pending or not.
func (w *world) named(message *spool.Message) *modelMessage {
	return w.messages[slices.IndexFunc(w.messages, func(m *modelMessage) bool { return m.name == message.MessageID })]
}

// brokerIsBack ends all trouble with the broker, but for the poison. What is innocent gets through,
// and the poison comes to its end: while other messages keep coming, or without any, after the
// limit for outages. Then the poison is cured.
func (p *modelProcess) brokerIsBack() {
	p.broker.parts, p.broker.calm = map[modelPart]modelState{}, true
	var innocent, poison []*modelMessage
	for _, m := range p.messages {
		switch {
		case m.place != pending || m.parked:
		case m.poison:
			poison = append(poison, m)
		case !slices.ContainsFunc(slices.Concat(p.ended, p.held), func(t turn) bool { return t.message.Ref.ID == m.id }):
			innocent = append(innocent, m)
		}
	}
	busy := rapid.Bool().Draw(p.T, "others keep coming")
	enough := 10 + 3*len(p.messages) + 12*len(poison)
	for round := 0; !p.isOver(innocent) || !p.isOver(poison); round++ {
		require.Less(p, round, enough, "it does not come to an end")
		if busy {
			p.keepComing(poison)
			p.clockGoesOn(time.Minute)
		} else {
			p.clockGoesOn(modelOutageLimit)
		}
		p.round(round > enough/2)
		p.check()
	}
	for _, m := range innocent {
		require.True(p, m.place == done && m.published || m.crashed || p.keysWait() && p.isBehind(m), "%s is innocent", m.name)
	}
	for _, m := range p.messages {
		m.poison = false
	}
}

// keepComing writes another message for each topic that still has poison and nothing else that can
// get through.
func (p *modelProcess) keepComing(poison []*modelMessage) {
	for _, topic := range []string{"x", "y"} {
		left := slices.ContainsFunc(poison, func(m *modelMessage) bool { return m.topic == topic && !p.hasEnded(m) })
		free := slices.ContainsFunc(p.messages, func(m *modelMessage) bool {
			return m.topic == topic && m.place == pending && !m.poison && !m.parked && !p.isBehind(m)
		})
		if left && !free {
			p.appendPlain(topic)
		}
	}
}

func (p *modelProcess) isOver(messages []*modelMessage) bool {
	return !slices.ContainsFunc(messages, func(m *modelMessage) bool { return !p.hasEnded(m) })
}

// hasEnded says whether a message is done or dead, or waits for an operator, as the policy for the
// head of a key has it, or is behind one that does.
func (p *modelProcess) hasEnded(m *modelMessage) bool {
	const enough = 3 // of those without a limit
	switch {
	case m.place != pending || m.parked || p.keysWait() && p.isBehind(m):
		return true
	case m.poison && p.settings.Retry.Attempts < 0:
		return m.attempts >= enough
	default:
		return false
	}
}

// keysWait says whether a key waits for ever behind poison, or for an operator.
func (p *modelProcess) keysWait() bool {
	return p.settings.Head == HeadPark || p.settings.Retry.Attempts < 0
}

// isBehind says whether a message waits for poison of its key, or for an operator.
func (p *modelProcess) isBehind(m *modelMessage) bool {
	return m.key != "" && !p.settings.Unordered && slices.ContainsFunc(p.messages, func(before *modelMessage) bool {
		return before.place == pending && (before.poison || before.parked) && before.key == m.key && before.id < m.id
	})
}
