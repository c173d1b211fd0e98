package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// overview is the state of a spool.
type overview struct {
	QueueInfo

	id int64
}

// Overviews returns all outboxes and queues by name, at a cost that does not grow with the number
// of messages.
func (o *operator) Overviews(ctx context.Context) ([]*overview, error) {
	spools, err := o.spools(ctx)
	if err != nil {
		return nil, spool.Wrap("list outboxes and queues", err)
	}
	spools = slices.DeleteFunc(spools, (*overview).isInbox)
	byID, ids := make(map[int64]*overview, len(spools)), make([]int64, len(spools))
	for i, s := range spools {
		byID[s.id], ids[i] = s, s.id
	}
	numbers, err := o.counts.Spools(ctx, ids)
	if err != nil {
		return nil, spool.Wrap("count messages", err)
	}
	for _, s := range spools {
		n := numbers[s.id]
		s.Pending, s.Due, s.Failing, s.Parked, s.Done, s.Dead, s.DeadLately, s.DueAge, s.OldestAge = n.Pending, n.Due, n.Failing, n.Parked, n.Done, n.Dead, n.DeadLately, n.DueAge, n.OldestAge
	}
	if err := o.countStuck(ctx, ids, byID); err != nil {
		return nil, spool.Wrap("count stuck keys", err)
	}
	if err := o.countMembers(ctx, byID); err != nil {
		return nil, spool.Wrap("count processes", err)
	}
	for _, s := range spools {
		if s.Pending <= CountedUpTo { // some of those in flight may have been settled since
			s.InFlight = min(s.InFlight, s.Pending)
		}
		s.Limits = spool.Settings(s.Settings).Limits(s.Limits)
	}
	return spools, nil
}

// isInbox reports whether it is the history of an inbox.
func (o *overview) isInbox() bool { return o.Target.Kind == spool.KindInbox }

// spools returns the registered spools: outboxes, then queues, then inboxes, each sorted by name,
// whatever the collation of the database.
func (o *operator) spools(ctx context.Context) (spools []*overview, err error) {
	err = spool.Each(ctx, o.db, o.statements.Spools(0), func(scan spool.Scan) error {
		s := &overview{}
		var paused sql.NullInt64
		var until int64
		var name, by, reason, settings string
		if err := scan(&s.id, &name, new(int64), &paused, &by, &reason, &until, &settings, &s.PausedKeys, &s.PausedTopics); err != nil {
			return err
		}
		if paused.Valid {
			s.Pause = Paused{Since: time.UnixMicro(paused.Int64), By: by, Reason: reason, Until: endOf(until)}
		}
		stored, err := spool.DecodeSettings(settings)
		if err != nil { // drainers ignore them too
			o.logger.Error("Postbox cannot read stored settings", err, watermill.LogFields{"spool": name})
		}
		s.Target, s.Settings = targetOf(name), Settings(stored)
		spools = append(spools, s)
		return nil
	})
	slices.SortFunc(spools, func(a, b *overview) int {
		return cmp.Or(kind(a.Target)-kind(b.Target), strings.Compare(a.Target.Name, b.Target.Name))
	})
	return spools, err
}

// countMembers counts live drainers, and adds up the messages they had in flight at their last
// heartbeats.
func (o *operator) countMembers(ctx context.Context, spools map[int64]*overview) error {
	return spool.Each(ctx, o.db, dialect.Query{Text: o.statements.Members, Args: []any{0}}, func(scan spool.Scan) error {
		var id int64
		var holder string
		var text []byte
		err := scan(&id, &holder, &text, new(int64))
		s := spools[id]
		if err != nil || s == nil {
			return err
		}
		beat, err := spool.DecodeHeartbeat(text)
		s.Processes++
		for _, n := range beat.InFlight {
			s.InFlight += n
		}
		s.addOutages(beat)
		s.addLimits(beat.Limits)
		if i, known := slices.BinarySearch(s.Work, beat.Work); !known && beat.Work != "" {
			s.Work = slices.Insert(s.Work, i, beat.Work)
		}
		if call := beat.LongCall; call != nil && (s.LongCall == nil || call.Since.Before(s.LongCall.Since)) {
			s.LongCall = callOf(call, holder)
		}
		return err
	})
}

// addOutages adds those that one drainer sees. Several may see that of one topic, one after the
// other.
func (o *overview) addOutages(beat spool.Heartbeat) {
	for topic, since := range beat.Outages {
		next := beat.Tries[topic]
		i, found := slices.BinarySearchFunc(o.Outages, topic, func(known Outage, topic string) int { return strings.Compare(known.Topic, topic) })
		if !found {
			o.Outages = slices.Insert(o.Outages, i, Outage{topic, since, next})
			continue
		}
		known := &o.Outages[i]
		if since.Before(known.Since) {
			known.Since = since
		}
		if next.Before(known.Next) {
			known.Next = next
		}
	}
}
