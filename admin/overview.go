package admin

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/counts"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// overview is the state of a spool, with the settings that operators have stored.
type overview struct {
	Name        string
	Members     int // number of live drainers
	PausedSince time.Time
	PausedKeys  int
	// PausedTopics is the number of paused topics.
	PausedTopics int
	// StuckKeys is the number of keys with a retrying message, and StuckAge how long ago the first
	// of these failed: among maxStuckCounted messages.
	StuckKeys int
	StuckAge  time.Duration
	Settings  spool.Settings

	// InFlight is that of the last heartbeats, and at most Pending: some of the messages may have
	// been settled since.
	InFlight int
	// Outages are the topics for which a live drainer sees an outage, by name.
	Outages []Outage
	// Configured are the limits that a live drainer is configured with, and LimitsDiffer says
	// whether others have other ones.
	Configured   postbox.Limits
	LimitsDiffer bool
	// LongCall is the call that has not returned for longest, or nil.
	LongCall *Call
	// Work is what the live drainers do with messages, as they say.
	Work []string
	counts.Numbers

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
		s.Numbers = numbers[s.id]
	}
	if err := o.countStuck(ctx, ids, byID); err != nil {
		return nil, spool.Wrap("count stuck keys", err)
	}
	if err := o.countMembers(ctx, byID); err != nil {
		return nil, spool.Wrap("count processes", err)
	}
	for _, s := range spools {
		if s.Pending <= CountedUpTo {
			s.InFlight = min(s.InFlight, s.Pending)
		}
	}
	return spools, nil
}

// isInbox reports whether it is the history of an inbox.
func (o *overview) isInbox() bool {
	kind, _ := spool.Named(o.Name)
	return kind == spool.KindInbox
}

// spools returns the registered spools.
func (o *operator) spools(ctx context.Context) ([]*overview, error) {
	query := o.statements.Spools(0)
	rows, err := o.db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var spools []*overview
	for rows.Next() {
		s := &overview{}
		var paused sql.NullInt64
		var settings string
		if err := rows.Scan(&s.id, &s.Name, new(int64), &paused, &settings, &s.PausedKeys, &s.PausedTopics); err != nil {
			return nil, err
		}
		if paused.Valid {
			s.PausedSince = time.UnixMicro(paused.Int64)
		}
		if s.Settings, err = spool.DecodeSettings(settings); err != nil { // drainers ignore them too
			o.logger.Error("Postbox cannot read stored settings", err, watermill.LogFields{"spool": s.Name})
		}
		spools = append(spools, s)
	}
	return byName(spools), rows.Err()
}

// countMembers counts live drainers, and adds up the messages they had in flight at their last
// heartbeats.
func (o *operator) countMembers(ctx context.Context, spools map[int64]*overview) error {
	rows, err := o.db.QueryContext(ctx, o.statements.Members, 0)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		var holder string
		var text []byte
		if err := rows.Scan(&id, &holder, &text, new(int64)); err != nil {
			return err
		}
		s := spools[id]
		if s == nil {
			continue
		}
		beat, err := spool.DecodeHeartbeat(text)
		if err != nil {
			return err
		}
		s.Members++
		for _, n := range beat.InFlight {
			s.InFlight += n
		}
		s.addOutages(beat.Outages)
		s.addLimits(beat.Limits)
		if i, known := slices.BinarySearch(s.Work, beat.Work); !known && beat.Work != "" {
			s.Work = slices.Insert(s.Work, i, beat.Work)
		}
		if call := beat.LongCall; call != nil && (s.LongCall == nil || call.Since.Before(s.LongCall.Since)) {
			s.LongCall = callOf(call, holder)
		}
	}
	return rows.Err()
}

// addOutages adds those that one drainer sees. Several may see that of one topic, one after the
// other.
func (o *overview) addOutages(outages map[string]time.Time) {
	for topic, since := range outages {
		i, found := slices.BinarySearchFunc(o.Outages, topic, func(known Outage, topic string) int { return strings.Compare(known.Topic, topic) })
		switch {
		case !found:
			o.Outages = slices.Insert(o.Outages, i, Outage{topic, since})
		case since.Before(o.Outages[i].Since):
			o.Outages[i].Since = since
		}
	}
}
