package admin

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin/internal/counts"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Found is what the tables know of something: see [Admin.Find].
type Found struct {
	// Events is what has happened, and what is still to come, in the order of time.
	Events []Event `json:"events"`
	// More is true if more than 50 messages, dead letters or entries of the audit log match in one
	// place, or in all outboxes and queues together that have at most 100 messages each.
	More bool `json:"more,omitempty"`
	// Parts names the places of which only a part was looked at.
	Parts []string `json:"parts,omitempty"`
	// Forget are those that keep no history now: of what they handle only receipts leave a trace.
	Forget []Target `json:"forget,omitempty"`
}

// Event is something that has happened to a message.
type Event struct {
	// At is by the clock of the database; when a consumer has handled a message, as its receipt
	// says, by the consumer's.
	At time.Time `json:"at"`
	// Text says what, for people, and Error is the error of a failed attempt.
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
	// Target is where the message is or was: the zero value for that of a broker.
	Target Target `json:"target,omitzero"`
	// Message is the id of a message that is pending or in the history, and Letter that of a dead
	// letter.
	Message int64 `json:"message,omitempty"`
	Letter  int64 `json:"letter,omitempty"`
	// MessageID, Topic and Key are those of the message.
	MessageID string `json:"message_id,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Key       string `json:"key,omitempty"`
}

const (
	// maxFound is how many things Find takes from a place, and maxFollowed how many message ids it
	// looks for in turn.
	maxFound, maxFollowed = 50, 10
	// findAmong is how many rows it looks at in a place that has no index for the question.
	findAmong = 10_000
	// findFor is how long it looks at such places.
	findFor = 2 * time.Second
)

// Find looks for a message id, a correlation id, an ordering key, the number of a message or a dead
// letter, or a part of the error of a dead letter: among the pending messages, the histories and
// the dead letters of all outboxes, queues and inboxes, and in receipts and the audit log. It
// returns what has happened to the messages that it finds.
//
// The cost is bounded, however much is stored. Message ids in histories, dead letters and receipts,
// and numbers, are found by an index. Everything else is looked for among 10,000 rows of each
// place: the first of the pending messages, and the latest of the others. [Found.Parts] says where
// there are more.
func (a *Admin) Find(ctx context.Context, text string) (*Found, error) {
	if text == "" {
		return nil, failed(fmt.Errorf("find: %w", invalid(errors.New("nothing is named: give an id, a key, a number or a part of an error"))))
	}
	f := &finder{
		Admin: a, text: text, words: text, correlation: correlation(text), found: &Found{Events: []Event{}}, targets: map[int64]Target{}, seen: map[string]bool{},
		until: time.Now().Add(findFor),
	}
	if checkText("", text) != nil { // as errors are stored
		f.words = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
	}
	f.number, _ = strconv.ParseInt(text, 10, 64)
	for _, look := range []func(context.Context) error{f.inSpools, f.inLetters, f.follow, f.inAudit} {
		if err := look(ctx); err != nil {
			return nil, failed(spool.Wrap("find", err))
		}
	}
	slices.SortStableFunc(f.found.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	return f.found, nil
}

// correlation is a correlation id as metadata has it.
func correlation(id string) []byte {
	text, err := spool.EncodeMetadata(map[string]string{postbox.MetadataCorrelationID: id})
	if err != nil {
		return []byte(id)
	}
	return bytes.Trim(text, "{}")
}

// finder looks for one thing.
type finder struct {
	*Admin

	text        string
	words       string // the same for what is text in the database
	number      int64  // 0 if the text is none
	correlation []byte
	found       *Found
	targets     map[int64]Target // by the ids of spools
	seen        map[string]bool  // the subjects of what was found
	ids         []string         // its message ids
	acts        []any            // what the audit log calls it, without its target
	until       time.Time
}

// each does not let PostgreSQL compile a statement about many outboxes, which takes longer than to
// run it.
func (f *finder) each(ctx context.Context, query dialect.Query, read func(scan spool.Scan) error) error {
	return counts.Planned(ctx, f.db, f.statements.Kind, "SET LOCAL jit = off", func(from spool.Querier) error {
		return spool.Each(ctx, from, query, read)
	})
}

// rows runs a statement that returns one row more than is taken, to tell that there are more.
func (f *finder) rows(ctx context.Context, query dialect.Query, read func(scan spool.Scan) error) error {
	n := 0
	return f.each(ctx, query, func(scan spool.Scan) error {
		if n++; n > maxFound {
			f.found.More = true
			return nil
		}
		return read(scan)
	})
}

// end returns the place of the last row that is looked at, if there are more, which it notes.
func (f *finder) end(ctx context.Context, what string, query dialect.Query, place ...any) (more bool, err error) {
	err = f.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(place...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	f.found.Parts = append(f.found.Parts, what)
	return true, err
}

// inSpools looks at the messages of all outboxes and queues, and at all histories.
func (f *finder) inSpools(ctx context.Context) error {
	var pending, done [3][]int64 // the ids of those that have none, a few, and many
	err := f.each(ctx, f.query(searchedSpools), func(scan spool.Scan) error {
		var id, history int64
		var name, text string
		var pendings, dones int
		err := scan(&id, &name, &history, &text, &pendings, &dones)
		settings, _ := spool.DecodeSettings(text)
		f.targets[id] = targetOf(name)
		pending[pendings], done[dones] = append(pending[pendings], id), append(done[dones], id)
		if settings.History < 0 || settings.History == 0 && history == 0 { // an operator's comes first
			f.found.Forget = append(f.found.Forget, f.targets[id])
		}
		return err
	})
	if err != nil {
		return err
	}
	if f.number != 0 {
		if err := f.messages(ctx, f.query(findDoneNumber, f.number)); err != nil {
			return err
		}
	}
	if err := f.messages(ctx, f.query(findDoneID, []byte(f.text))); err != nil {
		return err
	}
	if err := errors.Join(
		f.amongFew(ctx, pending[1], findFewPending, []byte(f.text), []byte(f.text), f.number, f.correlation),
		f.amongFew(ctx, done[1], findFewDone, []byte(f.text), f.correlation),
	); err != nil {
		return err
	}
	for _, id := range pending[2] {
		if err := errors.Join(f.numbered(ctx, id), f.inPending(ctx, id)); err != nil {
			return err
		}
	}
	for _, id := range done[2] {
		if err := f.inHistory(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// amongFew looks at all messages of those that have only a few. The planner sees their ids.
func (f *finder) amongFew(ctx context.Context, ids []int64, text string, args ...any) error {
	if len(ids) == 0 {
		return nil
	}
	return f.messages(ctx, f.query(strings.ReplaceAll(text, "{ids}", strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]")), args...))
}

// inPending looks at the first pending messages of an outbox or a queue.
func (f *finder) inPending(ctx context.Context, id int64) error {
	if f.late("the pending messages of the " + f.targets[id].String()) {
		return nil
	}
	var state, lane int
	var last int64
	more, err := f.end(ctx, fmt.Sprintf("the first %d pending messages of the %s", findAmong, f.targets[id]), f.query(endOfPending, id, findAmong), &state, &lane, &last)
	if err != nil {
		return err
	}
	text := []byte(f.text)
	if f.statements.Kind == dialect.MySQL {
		if !more {
			state, lane, last = operatorsql.StateDone, 0, 0
		}
		return f.messages(ctx, f.query(findPendingUpTo, id, state, state, lane, state, lane, last, text, text, f.number, f.correlation))
	}
	return f.messages(ctx, f.query(findPending, id, findAmong, text, text, f.number, f.correlation))
}

// inHistory looks at the latest messages of a history.
func (f *finder) inHistory(ctx context.Context, id int64) error {
	if f.late("the history of the " + f.targets[id].String()) {
		return nil
	}
	var last int64
	_, err := f.end(ctx, fmt.Sprintf("keys and correlation ids of the latest %d messages in the history of the %s", findAmong, f.targets[id]), f.query(endOfDone, id, findAmong), &last)
	if err == nil {
		err = f.messages(ctx, f.query(findDone, id, last, []byte(f.text), f.correlation))
	}
	return err
}

// late notes that there is no time to look at a place.
func (f *finder) late(place string) bool {
	late := time.Now().After(f.until)
	if late {
		f.found.Parts = append(f.found.Parts, "nothing of "+place+", since time was up")
	}
	return late
}

// numbered finds a pending message by its number.
func (f *finder) numbered(ctx context.Context, id int64) error {
	if f.number == 0 {
		return nil
	}
	m, err := f.operator.read(ctx, f.db, f.operator.statements.PendingMessage(operatorsql.Lookup{Spool: id, ID: f.number}))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.message(ctx, f.targets[id], m)
}

// messages adds those that a statement selects.
func (f *finder) messages(ctx context.Context, query dialect.Query) error {
	type stored struct {
		target Target
		*storedMessage
	}
	var all []stored
	err := f.rows(ctx, query, func(scan spool.Scan) error {
		m, id := &storedMessage{}, int64(0)
		err := m.scan(func(targets ...any) error { return scan(append([]any{&id}, targets...)...) })
		all = append(all, stored{f.targets[id], m})
		return err
	})
	for _, m := range all {
		err = errors.Join(err, f.message(ctx, m.target, m.storedMessage))
	}
	return err
}

// known reports whether something was found before, and notes it.
func (f *finder) known(subject, messageID string, target Target, act string) bool {
	known := f.seen[subject]
	f.seen[subject], f.seen[target.String()+act] = true, true
	if !known && !slices.Contains(f.ids, messageID) {
		f.ids = append(f.ids, messageID)
	}
	if !slices.Contains(f.acts, any(act)) {
		f.acts = append(f.acts, act)
	}
	return known
}

// inLetters looks at dead letters.
func (f *finder) inLetters(ctx context.Context) error {
	err := f.lettersOf(ctx, f.query(findLettersID, []byte(f.text)))
	if err == nil && f.number != 0 {
		err = f.letter(ctx, f.number)
	}
	if err != nil {
		return err
	}
	looked, last := 0, int64(0)
	ends := f.statements.LetterEnds(operatorsql.DeadLetterFilter{NewestFirst: true}, findAmong+1)
	if err = f.db.QueryRowContext(ctx, ends.Text, ends.Args...).Scan(&looked, &last, new(int64)); looked <= findAmong {
		last = 0
	} else {
		f.found.Parts = append(f.found.Parts, fmt.Sprintf("keys, correlation ids and errors of the latest %d dead letters", findAmong))
	}
	if err == nil {
		err = f.lettersOf(ctx, f.query(findLetters, last, []byte(f.text), f.words, f.correlation))
	}
	return err
}

func (f *finder) lettersOf(ctx context.Context, query dialect.Query) error {
	var ids []int64
	err := f.rows(ctx, query, func(scan spool.Scan) error {
		var id int64
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	for _, id := range ids {
		err = errors.Join(err, f.letter(ctx, id))
	}
	return err
}

// follow looks for the message ids of what was found, by indexes alone.
func (f *finder) follow(ctx context.Context) error {
	ids := append([]string{f.text}, f.ids...)
	for i, id := range ids[:min(len(ids), maxFollowed)] {
		if i > 0 && id == f.text {
			continue
		}
		found, err := receipt.OfMessage(ctx, f.db, f.statements.Statements, id)
		if err != nil {
			return err
		}
		for _, s := range found {
			f.receipt(receiptOf(s))
		}
		if i == 0 { // it was looked for
			continue
		}
		if err := errors.Join(f.messages(ctx, f.query(findDoneID, []byte(id))), f.lettersOf(ctx, f.query(findLettersID, []byte(id)))); err != nil {
			return err
		}
	}
	return nil
}

// inAudit looks for what operators did to what was found.
func (f *finder) inAudit(ctx context.Context) error {
	var last int64
	if _, err := f.end(ctx, fmt.Sprintf("the latest %d entries of the audit log", findAmong), f.query(endOfActs, findAmong), &last); err != nil {
		return err
	}
	acts := append([]any{f.words}, f.acts[:min(len(f.acts), maxFound)]...)
	text := strings.ReplaceAll(findActs, "{subjects}", strings.TrimPrefix(strings.Repeat(", ?", len(acts)), ", "))
	return f.rows(ctx, f.query(text, append([]any{last, f.words, f.words}, acts...)...), func(scan spool.Scan) error {
		var at int64
		var e AuditEntry
		var target string
		err := scan(&at, &e.Actor, &e.Action, &target, &e.Subject, &e.Affected, &e.Note)
		about := Event{Target: targetOf(target)}
		if slices.Contains(acts[1:], any(e.Subject)) && !f.seen[about.Target.String()+e.Subject] { // of another queue
			return err
		}
		said := fmt.Sprintf("%s: %s %s", e.Actor, e.Action, e.Subject)
		if e.Subject == "" {
			said = fmt.Sprintf("%s: %s of %d", e.Actor, e.Action, e.Affected)
		}
		if e.Note != "" {
			said += ": " + e.Note
		}
		f.add(about, time.UnixMicro(at), said)
		return err
	})
}
