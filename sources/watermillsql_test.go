package sources

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

func TestSource_defaults(t *testing.T) {
	t.Parallel()
	source := watermillSQL{Topic: "events"}
	source.setDefaults(postbox.PostgreSQL)
	require.Equal(t, watermillSQL{
		Topic: "events", Table: `"watermill_events"`, OffsetsTable: `"watermill_offsets_events"`, Destination: "events",
		PageSize: 2000, PollMin: 5 * time.Millisecond, PollMax: time.Second,
	}, source)
	require.NoError(t, source.validate(postbox.PostgreSQL))

	enveloped := watermillSQL{Topic: "events", Envelope: true}
	enveloped.setDefaults(postbox.MySQL)
	require.Equal(t, "`watermill_events`", enveloped.Table)
	require.Equal(t, "`watermill_offsets_events`", enveloped.OffsetsTable)
	require.Empty(t, enveloped.Destination, "the envelope names it")
	require.NoError(t, enveloped.validate(postbox.MySQL))
}

func TestSource_validate_names_each_problem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dialect postbox.Dialect
		source  watermillSQL
		want    string
	}{
		"SQLite":      {postbox.SQLite, watermillSQL{Topic: "events"}, "no schema for SQLite"},
		"no topic":    {postbox.PostgreSQL, watermillSQL{}, "Topic:"},
		"odd topic":   {postbox.PostgreSQL, watermillSQL{Topic: `events"; DROP TABLE x`}, "Topic:"},
		"both":        {postbox.PostgreSQL, watermillSQL{Topic: "events", Envelope: true, Destination: "orders"}, "Destination: set Destination or Envelope"},
		"destination": {postbox.PostgreSQL, watermillSQL{Topic: "events", Destination: strings.Repeat("x", 256)}, "Destination: the topic has 256 bytes"},
		"page":        {postbox.MySQL, watermillSQL{Topic: "events", PageSize: 10_001}, "PageSize:"},
		"poll":        {postbox.MySQL, watermillSQL{Topic: "events", PollMin: time.Second, PollMax: time.Millisecond}, "PollMin and PollMax:"},
		"group":       {postbox.MySQL, watermillSQL{Topic: "events", ConsumerGroup: strings.Repeat("x", 256)}, "ConsumerGroup:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.source.setDefaults(test.dialect)
			require.ErrorContains(t, test.source.validate(test.dialect), test.want)
		})
	}
}

func decoderFor(source watermillSQL) decoder {
	source.setDefaults(postbox.PostgreSQL)
	return decoder{source: source, orderingKey: postbox.MetadataOrderingKey}
}

func TestDecoder_keys(t *testing.T) {
	t.Parallel()
	plain := sourceRow{uuid: []byte("1"), payload: []byte(`{}`), metadata: []byte(`{"tenant":"a"}`)}
	keyed := sourceRow{uuid: []byte("2"), payload: []byte(`{}`), metadata: []byte(`{"partition_key":"k"}`)}

	byDefault := decoderFor(watermillSQL{Topic: "events", Destination: "orders"})
	draft, err := byDefault.draft(plain)
	require.NoError(t, err)
	require.Equal(t, "orders", draft.Topic)
	require.Equal(t, "orders", draft.Key, "a topic keeps its order")
	require.Equal(t, map[string]string{"tenant": "a"}, draft.Metadata, "and its messages do not change for it")
	draft, err = byDefault.draft(keyed)
	require.NoError(t, err)
	require.Equal(t, "k", draft.Key)

	byTenant := decoderFor(watermillSQL{Topic: "events", KeyFrom: func(_ string, msg *message.Message) string { return msg.Metadata.Get("tenant") }})
	draft, err = byTenant.draft(plain)
	require.NoError(t, err)
	require.Equal(t, "a", draft.Key)
	require.Equal(t, "a", draft.Metadata[postbox.MetadataOrderingKey])
	draft, err = byTenant.draft(keyed)
	require.NoError(t, err)
	require.Empty(t, draft.Key, "no key is an answer")
}

func TestDecoder_envelope(t *testing.T) {
	t.Parallel()
	d := decoderFor(watermillSQL{Topic: "events", Envelope: true})
	draft, err := d.draft(sourceRow{uuid: []byte("outer"), metadata: []byte("null"), payload: []byte(
		`{"destination_topic":"orders","uuid":"inner","payload":"aGVsbG8=","metadata":{"a":"b"}}`)})
	require.NoError(t, err)
	require.Equal(t, "orders", draft.Topic)
	require.Equal(t, "inner", draft.MessageID)
	require.Equal(t, "hello", string(draft.Payload))
	require.Equal(t, map[string]string{"a": "b"}, draft.Metadata)

	draft, err = d.draft(sourceRow{uuid: []byte("outer"), payload: []byte(`{"destination_topic":"orders","uuid":"","payload":null,"metadata":null}`)})
	require.NoError(t, err)
	require.Equal(t, "outer", draft.MessageID, "an id is what an inbox tells messages apart by")
	require.Empty(t, draft.Payload)
}

func TestDecoder_F12_names_what_is_wrong_with_a_row(t *testing.T) {
	t.Parallel()
	panicking := func(string, *message.Message) string { panic("no tenant") }
	for name, test := range map[string]struct {
		source  watermillSQL
		payload string
		extra   string
		want    string
	}{
		"metadata":        {watermillSQL{}, `{}`, `{"n":1}`, "not a JSON object of strings"},
		"not JSON":        {watermillSQL{Envelope: true}, `hello`, `{}`, "not an envelope"},
		"another object":  {watermillSQL{Envelope: true}, `{"id":1}`, `{}`, "names no destination topic"},
		"bad base64":      {watermillSQL{Envelope: true}, `{"destination_topic":"orders","payload":"%"}`, `{}`, "not an envelope"},
		"long topic":      {watermillSQL{Envelope: true}, `{"destination_topic":"` + strings.Repeat("x", 256) + `"}`, `{}`, "256 bytes"},
		"NUL in a topic":  {watermillSQL{Envelope: true}, `{"destination_topic":"a\u0000"}`, `{}`, "NUL"},
		"KeyFrom panics":  {watermillSQL{KeyFrom: panicking}, `{}`, `{}`, "KeyFrom panics: no tenant"},
		"metadata a list": {watermillSQL{}, `{}`, `[]`, "not a JSON object of strings"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.source.Topic = "events"
			d := decoderFor(test.source)
			_, err := d.draft(sourceRow{uuid: []byte("1"), payload: []byte(test.payload), metadata: []byte(test.extra)})
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestSnapshot_parse(t *testing.T) {
	t.Parallel()
	s, err := parseSnapshot("10:20:10,14,15")
	require.NoError(t, err)
	require.Equal(t, &snapshot{next: 20, running: []int64{10, 14, 15}}, s)
	require.True(t, s.runs(14))
	require.False(t, s.runs(16))
	s, err = parseSnapshot("20:20:")
	require.NoError(t, err)
	require.Equal(t, &snapshot{next: 20}, s)
	s, err = parseSnapshot("")
	require.NoError(t, err)
	require.Nil(t, s)
	for _, text := range []string{"1", "1:x:", "1:2:3,y"} {
		_, err = parseSnapshot(text)
		require.Error(t, err, text)
	}
}

// modelTx is a transaction of the model: it takes its id at its first write, which may be long
// before it commits.
type modelTx struct {
	id               int64
	rows             int64
	begun, committed int // points in time
	open, aborted    bool
}

// model is a table written by transactions that overlap in any way.
type model struct {
	random *rand.Rand
	now    int
	next   int64
	all    []*modelTx
}

func (m *model) snapshot() *snapshot {
	s := &snapshot{next: m.next}
	for _, tx := range m.all {
		if tx.open {
			s.running = append(s.running, tx.id)
		}
	}
	return s
}

// work lets producers begin, write, commit and roll back.
func (m *model) work(steps int) {
	for range steps {
		m.now++
		if open := slices.DeleteFunc(slices.Clone(m.all), func(tx *modelTx) bool { return !tx.open }); len(open) > 0 && m.random.IntN(2) == 0 {
			tx := open[m.random.IntN(len(open))]
			tx.open, tx.aborted, tx.committed = false, m.random.IntN(6) == 0, m.now
			continue
		}
		m.next++ // other tables take ids too
		m.all = append(m.all, &modelTx{id: m.next, rows: m.random.Int64N(5), begun: m.now, open: true})
		m.next++
	}
}

// page is what the page statement reads.
func (m *model) page(p position, gone map[rowID]bool, limit int) (rows []rowID) {
	for _, tx := range m.all {
		for offset := range tx.rows {
			row := rowID{Transaction: tx.id, Offset: offset}
			late := slices.ContainsFunc(p.Late, func(l rowID) bool { return l.Transaction == tx.id && offset > l.Offset })
			if !tx.open && !tx.aborted && !gone[row] && (late || compareRows(row, p.After) > 0) {
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, compareRows)
	return rows[:min(limit, len(rows))]
}

// Whatever overlaps, every committed row is found once, and a transaction that began after another
// one committed is found after it. Two processes take turns, of which one forgets all but what is
// stored. Also covers F4.
func TestPosition_G3_reads_every_row_in_causal_order(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same numbers each time are wanted
		m := &model{random: random, next: 3}
		gone, turn := map[rowID]bool{}, map[rowID]int{}
		var stored rowID
		positions := [2]position{}
		for step := range 80 {
			m.work(random.IntN(4))
			seen := m.snapshot()
			m.work(random.IntN(4)) // between the snapshot and the read
			who := random.IntN(2)
			if random.IntN(20) == 0 {
				positions[who] = position{} // a restart
			}
			if step > 60 {
				for _, tx := range m.all {
					if tx.open {
						tx.open, tx.committed = false, m.now
					}
				}
			}
			limit := 1 + random.IntN(6)
			before := positions[who].raise(stored)
			rows := m.page(before, gone, limit)
			var last *rowID
			for i := range rows {
				require.False(t, gone[rows[i]])
				gone[rows[i]] = true
				turn[rows[i]] = len(turn)
				last = &rows[i]
			}
			positions[who] = before.advance(seen, last, len(rows) == limit)
			stored = positions[who].lowest()
		}
		for range 1000 {
			seen := m.snapshot()
			rows := m.page(positions[0].raise(stored), gone, 50)
			if len(rows) == 0 {
				break
			}
			for i := range rows {
				gone[rows[i]] = true
				turn[rows[i]] = len(turn)
			}
			positions[0] = positions[0].raise(stored).advance(seen, &rows[len(rows)-1], len(rows) == 50)
			stored = positions[0].lowest()
		}
		m.check(t, turn, fmt.Sprintf("seed %d", seed))
	}
}

func (m *model) check(t *testing.T, turn map[rowID]int, what string) {
	t.Helper()
	last := map[int64]int{}
	first := map[int64]int{}
	for _, tx := range m.all {
		for offset := range tx.rows {
			at, found := turn[rowID{Transaction: tx.id, Offset: offset}]
			if tx.open || tx.aborted {
				require.False(t, found, what)
				continue
			}
			require.True(t, found, "%s: row %d of transaction %d is lost", what, offset, tx.id)
			if offset == 0 {
				first[tx.id] = at
			}
			last[tx.id] = max(last[tx.id], at)
		}
	}
	written := slices.DeleteFunc(slices.Clone(m.all), func(tx *modelTx) bool { _, ok := first[tx.id]; return !ok })
	slices.SortFunc(written, func(a, b *modelTx) int { return cmp.Compare(a.id, b.id) })
	for i, a := range written {
		for _, b := range written[i+1:] {
			if a.committed < b.begun {
				require.Less(t, last[a.id], first[b.id], "%s: transaction %d committed before %d began", what, a.id, b.id)
			}
		}
	}
}
