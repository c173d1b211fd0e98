package drain

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// modelLane is a row of the lanes.
type modelLane struct {
	holder  string
	token   int64
	live    bool // its lease has not ended
	suspect bool
}

// readLanes returns the lanes, and checks that under a fencing token a lane has one holder, ever.
func (w *world) readLanes() map[int]modelLane {
	lanes := map[int]modelLane{}
	w.query("SELECT l.lane, COALESCE(l.holder, ''), l.token, COALESCE(m.expires_at, 0), l.suspect FROM postbox_lanes l LEFT JOIN postbox_members m ON m.spool = l.spool AND m.holder = l.holder", func(scan func(...any) error) error {
		var number int
		var lane modelLane
		var expires int64
		if err := scan(&number, &lane.holder, &lane.token, &expires, &lane.suspect); err != nil {
			return err
		}
		lane.live = expires > time.Now().UnixMicro()
		lanes[number] = lane
		return nil
	})
	for number, lane := range lanes {
		require.GreaterOrEqual(w, lane.token, w.tokens[number], "tokens grow")
		w.tokens[number] = lane.token
		if lane.holder == "" {
			continue
		}
		key := [2]int64{int64(number), lane.token}
		if w.holders[key] == "" {
			w.holders[key] = lane.holder
		}
		require.Equal(w, w.holders[key], lane.holder, "two holders of lane %d under token %d", number, lane.token)
	}
	return lanes
}

func (w *world) query(query string, row func(scan func(...any) error) error) {
	rows, err := w.db.DB.QueryContext(w.ctx, query)
	require.NoError(w, err, query)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		require.NoError(w, row(rows.Scan), query)
	}
	require.NoError(w, rows.Err(), query)
}

// learnIDs finds out which rows new messages and new dead letters are.
func (w *world) learnIDs() {
	find := func(query string, into func(m *modelMessage) *int64) {
		w.query(query, func(scan func(...any) error) error {
			var id int64
			var name []byte
			err := scan(&id, &name)
			for _, m := range w.messages {
				if target := into(m); m.name == string(name) && target != nil && *target == 0 {
					*target = id
				}
			}
			return err
		})
	}
	if slices.ContainsFunc(w.messages, func(m *modelMessage) bool { return m.place == pending && m.id == 0 }) {
		find("SELECT id, message_id FROM postbox_messages", func(m *modelMessage) *int64 {
			if m.place == pending {
				return &m.id
			}
			return nil
		})
	}
	if slices.ContainsFunc(w.messages, func(m *modelMessage) bool { return m.place == dead && m.letter == 0 }) {
		find("SELECT id, message_id FROM postbox_dead_letters", func(m *modelMessage) *int64 {
			if m.place == dead {
				return &m.letter
			}
			return nil
		})
	}
}

// modelRow is what the model compares of a pending message.
type modelRow struct {
	name                    string
	state, attempts, starts int
	parked, due             bool
}

// check compares the database with what must be true.
func (w *world) check() {
	w.readLanes()
	w.logCommit(0)
	want, got := map[int64]modelRow{}, map[int64]modelRow{}
	counts, wantCounts := map[string]int{}, map[string]int{}
	written := 0
	for _, m := range w.messages {
		switch m.place {
		case nowhere:
			continue
		case pending:
			want[m.id] = modelRow{m.name, m.state, m.attempts, m.starts, m.parked, m.due}
		case done:
			if m.kept {
				wantCounts["history "+m.name] = 1
			}
			if w.effective {
				wantCounts["effect "+m.name] = 1
			}
		case dead:
			if m.resolved {
				wantCounts["resolved "+m.name] = 1
			} else {
				wantCounts["dead "+m.name] = 1
			}
		case gone:
		}
		written++
	}
	w.query("SELECT id, message_id, state, attempts, starts, available_at FROM postbox_messages", func(scan func(...any) error) error {
		var id, available int64
		var name []byte
		var row modelRow
		if err := scan(&id, &name, &row.state, &row.attempts, &row.starts, &available); err != nil {
			return err
		}
		row.name, row.parked = string(name), available >= dialect.ParkedFrom
		row.due = row.state == dialect.StateReady || available < longAgo
		got[id] = row
		return nil
	})
	require.Equal(w, want, got, "pending messages")
	w.query("SELECT 'history ', message_id FROM postbox_history UNION ALL "+
		"SELECT CASE WHEN resolved_at IS NULL THEN 'dead ' ELSE 'resolved ' END, message_id FROM postbox_dead_letters",
		func(scan func(...any) error) error {
			var what string
			var name []byte
			err := scan(&what, &name)
			counts[what+string(name)]++
			return err
		})
	w.query("SELECT message_id FROM effects", func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		counts["effect "+name]++
		return err
	})
	require.Equal(w, wantCounts, counts, "what is done and dead, and its effects")
	require.Len(w, w.messages, written+w.uncommitted(), "written = done + pending + dead")
}

func (w *world) uncommitted() int {
	n := 0
	for _, late := range w.late {
		n += len(late.messages)
	}
	return n
}

// finale ends all trouble and lets one process work: one that has seen it all, or a new one. Soon
// nothing is left.
func (w *world) finale() {
	for len(w.late) > 0 {
		w.commitLate()
	}
	w.unlock()
	if w.paused {
		w.pause()
	}
	for key, paused := range w.keys {
		if paused {
			w.keys[key] = false
			w.say(w.in("DELETE FROM postbox_pauses"))
		}
	}
	for topic, paused := range w.topics {
		if paused {
			w.topics[topic] = false
			w.say(w.in("DELETE FROM postbox_topic_pauses"))
		}
	}
	var last *modelProcess
	if len(w.processes) > 0 && rapid.Bool().Draw(w.T, "the last one has seen it all") {
		last = w.processes[rapid.IntRange(0, len(w.processes)-1).Draw(w.T, "last")]
	}
	for _, p := range slices.Clone(w.processes) {
		if p != last {
			p.crash()
		}
	}
	w.expireGhosts()
	if last == nil {
		w.spawn()
		last = w.processes[0]
	}
	last.excluded, last.within = nil, true // nothing happens in between any more
	if w.broker != nil {
		last.brokerIsBack()
	}
	if w.db.Dialect != postbox.SQLite && rapid.IntRange(0, 2).Draw(w.T, "lock") == 2 {
		last.othersGoOn()
	}
	enough := 10 + 3*len(w.messages)
	for round := 0; w.left() || len(last.runs)+len(last.ended)+len(last.held) > 0 || w.suspects(); round++ {
		require.Less(w, round, enough, "it does not come to an end")
		last.goOn(round > enough/2)
	}
	for _, m := range w.messages {
		require.Contains(w, []place{done, dead, gone}, m.place, m.name)
	}
}

func (w *world) left() bool {
	return slices.ContainsFunc(w.messages, func(m *modelMessage) bool { return m.place == pending })
}

func (w *world) suspects() bool {
	for _, lane := range w.readLanes() {
		if lane.suspect {
			return true
		}
	}
	return false
}

// goOn lets a minute pass, after which the process goes on.
func (p *modelProcess) goOn(sweep bool) {
	p.unpark()
	p.clockGoesOn(time.Minute)
	p.round(sweep)
	p.check()
}

// round does all that a process can do now, and everything succeeds that can.
func (p *modelProcess) round(sweep bool) {
	for _, m := range p.messages {
		if m.place == pending && !m.parked && !m.due && (p.broker == nil || !p.broker.now.Before(m.until)) {
			p.makeDue(m)
		}
	}
	p.d.settle.setbacks.lockedUntil, p.d.pace.renewAt, p.d.pace.at, p.d.reader.watermark.markAt, p.d.control.checkedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	p.restUntil(time.Now())
	p.d.reader.sweeping.next = time.Now().Add(time.Hour)
	if sweep { // what became free without this process's doing
		p.d.reader.sweeping.next = time.Time{}
	}
	p.stepNow()
	for running := -1; running != len(p.runs); {
		running = len(p.runs)
		p.take()
	}
	for len(p.runs) > 0 {
		run := p.runs[0]
		switch {
		case run.outcomes != nil:
		case p.broker != nil:
			p.publish(run)
		default:
			p.decide(run, func(*spool.Message) spool.Verdict { return spool.Done })
		}
		p.reply(run)
	}
}
