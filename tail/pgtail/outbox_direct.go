package pgtail

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// readyMost is with how many ready rows of an outbox messages are still published without a row. With more of them the
// outbox lags, and all messages with a key become rows, so that a look at the keys of rows is cheap.
const readyMost = 500

// publish publishes the messages that nothing holds back, and marks them. It reports whether there were any. This is the one
// place that decides where a message goes: it is published without a row if
//
//   - a forwarder of this process has its outbox, and the message has no delay;
//   - neither the outbox nor its topic is paused, and, if it has a key, no key is;
//   - no row of its key waits to be published, and no earlier message of its key becomes a row now;
//   - no session that is gone may have published it, see reserve. Such a process may have crashed because of this very
//     message, and only rows count starts;
//   - the forwarder allows it, see [tail.Direct].
//
// Rows of a key are looked for when the transaction of the message is visible, so all rows that were committed before it
// are found. Rows of the key that come later are those of this keeper, or not ordered with it. So no message overtakes an earlier one.
func (k *keeper) publish(ctx context.Context, portions []portion) (published bool, err error) {
	for name, messages := range k.direct(portions) {
		follower, release := k.group.use(name)
		if follower == nil {
			continue
		}
		some, err := k.publishFor(ctx, follower, portions, messages)
		release()
		if published = published || some; err != nil {
			return published, err
		}
	}
	return published, nil
}

// candidate is a message that may need no row.
type candidate struct {
	*received

	committed time.Time
	held      bool // it may have been published before the session, so that later messages of its key get rows, too
}

// direct returns the messages without a delay by outbox, in their order. It leaves out outboxes of which none may be published.
func (k *keeper) direct(portions []portion) map[string][]candidate {
	messages, some := map[string][]candidate{}, map[string]bool{}
	for _, p := range portions {
		for i := range p.messages {
			if m := &p.messages[i]; m.draft.Due.IsZero() {
				messages[m.outbox] = append(messages[m.outbox], candidate{received: m, committed: p.at, held: p.final < k.since})
				some[m.outbox] = some[m.outbox] || p.final >= k.since
			}
		}
	}
	for outbox := range messages {
		if !some[outbox] {
			delete(messages, outbox)
		}
	}
	return messages
}

// publishFor publishes messages of one outbox.
func (k *keeper) publishFor(ctx context.Context, f *follower, portions []portion, messages []candidate) (some bool, err error) {
	var found ahead
	keys := keysOf(messages)
	err = untilVisible(ctx, func() error {
		if found, err = k.look(ctx, f.Name, keys); err != nil {
			return err
		}
		return visible(found.seen, portions)
	})
	if err != nil || found.spool == 0 || found.paused {
		return false, err
	}
	held := &found.held
	var batch []*spool.Message
	var of []candidate
	for _, c := range messages {
		m := c.message(found.clock)
		if c.held || slices.Contains(found.topics, m.Topic) || m.HasKey && held.has(m.KeyHash) {
			held.add(m)
			continue
		}
		batch, of = append(batch, m), append(of, c)
	}
	if len(batch) == 0 {
		return false, nil
	}
	if err := k.reserve(ctx, portions); err != nil {
		return false, err
	}
	for i, acknowledged := range f.Direct.Publish(ctx, batch, found.settings) {
		of[i].direct = acknowledged
		some = some || acknowledged
	}
	return some, nil
}

// message returns the message as a forwarder gets it. clock is by how much the database's clock is ahead of this process's.
func (c candidate) message(clock time.Duration) *spool.Message {
	d := c.draft
	m := &spool.Message{
		Topic: d.Topic, MessageID: d.MessageID, Key: d.Key, HasKey: d.Key != "", Payload: d.Payload, Metadata: d.Metadata,
		CreatedAt: c.committed.Add(-clock), Size: len(d.Payload), Loaded: true,
	}
	if m.HasKey {
		m.KeyHash = postbox.KeyHash(d.Key)
	}
	return m
}

// ahead is what is known before messages of an outbox are published.
type ahead struct {
	seen     tail.Snapshot
	clock    time.Duration // by how much the database's clock is ahead of this process's
	spool    int64         // 0: the outbox is not registered
	settings spool.Settings
	paused   bool
	topics   []string // the paused ones
	held     holds
}

// look asks what is to be known before messages of these keys are published, and whether this process still has the log.
func (k *keeper) look(ctx context.Context, outbox string, keys []int64) (found ahead, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	ready := 0
	if len(keys) > 0 {
		ready = readyMost
	}
	var snapshot, settings, topics, withRows string
	var now, epoch int64
	var pausedKeys bool
	err = k.row(ctx, k.outbox.Statements.LogAhead(k.position.Server, outbox, keys, ready), &snapshot, &now, &epoch, &found.spool, &settings, &found.paused, &pausedKeys, &topics, &withRows)
	if err != nil {
		return found, fmt.Errorf("look at the outbox: %w", err)
	}
	if epoch != k.position.Epoch {
		return found, errFenced
	}
	found.clock = time.Until(time.UnixMicro(now))
	if err := json.Unmarshal([]byte(topics), &found.topics); err != nil {
		return found, fmt.Errorf("read the paused topics: %w", err)
	}
	if found.held, err = heldBy(withRows, pausedKeys); err != nil {
		return found, err
	}
	if found.settings, err = spool.DecodeSettings(settings); err != nil {
		found.paused = true // the forwarder logs that, and rows are safe in any case
	}
	found.seen, err = tail.ParseSnapshot(snapshot)
	return found, err
}

// holds are the keys whose messages become rows.
type holds struct {
	all  bool // all keys
	keys map[int64]bool
}

func (h *holds) has(key int64) bool { return h.all || h.keys[key] }

// add adds the key of a message that becomes a row.
func (h *holds) add(m *spool.Message) {
	if m.HasKey {
		h.keys[m.KeyHash] = true
	}
}

// heldBy returns the keys that have rows which must be published first, as [dialect.Statements.LogAhead] lists them, or all keys if any is paused or there are too many rows.
func heldBy(withRows string, paused bool) (h holds, err error) {
	var hashes []*int64 // nil for a row without a key
	if err := json.Unmarshal([]byte(withRows), &hashes); err != nil {
		return h, fmt.Errorf("read the keys of rows: %w", err)
	}
	h = holds{all: paused || len(hashes) >= readyMost, keys: map[int64]bool{}}
	for _, hash := range hashes {
		if hash != nil {
			h.keys[*hash] = true
		}
	}
	return h, nil
}

// keysOf returns the hash of each key once.
func keysOf(messages []candidate) (keys []int64) {
	for _, c := range messages {
		if c.draft.Key != "" {
			keys = append(keys, postbox.KeyHash(c.draft.Key))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
