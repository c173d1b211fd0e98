package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// statsOf counts the messages of a spool by topic, in the order of the topics. Pending and dead
// come from one moment.
func statsOf(ctx context.Context, db *sql.DB, statements *dialect.Statements, s *spool.Spool) ([]TopicStats, error) {
	name, topics := s.Name(), map[string]*TopicStats{}
	if err := countMessages(ctx, db, statements, s.ID(), topics); err != nil {
		return nil, spool.Wrap("count messages of "+described(name), err)
	}
	if err := countInFlight(ctx, db, statements, s.ID(), topics); err != nil {
		return nil, spool.Wrap("count messages in flight of "+described(name), err)
	}
	stats := make([]TopicStats, 0, len(topics))
	for _, topic := range topics {
		stats = append(stats, *topic)
	}
	slices.SortFunc(stats, func(a, b TopicStats) int { return cmp.Compare(a.Topic, b.Topic) })
	return stats, nil
}

// entryOf returns the counts of a topic, and adds them if they are missing.
func entryOf(topics map[string]*TopicStats, topic string) *TopicStats {
	entry := topics[topic]
	if entry == nil {
		entry = &TopicStats{Topic: topic}
		topics[topic] = entry
	}
	return entry
}

func countMessages(ctx context.Context, db *sql.DB, statements *dialect.Statements, id int64, topics map[string]*TopicStats) error {
	query := statements.CountMessages(id)
	rows, err := db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var found TopicStats
		var age int64
		err := rows.Scan(&found.Topic, &found.Pending, &found.Due, &found.Failing, &found.Parked, &age, &found.Dead, &found.DeadInbox)
		if err != nil {
			return err
		}
		entry := entryOf(topics, found.Topic) // pending and dead come in two rows
		entry.Pending += found.Pending
		entry.Due += found.Due
		entry.Failing += found.Failing
		entry.Parked += found.Parked
		entry.Dead += found.Dead
		entry.DeadInbox += found.DeadInbox
		entry.OldestAge = max(entry.OldestAge, time.Duration(age)*time.Microsecond)
	}
	return rows.Err()
}

func countInFlight(ctx context.Context, db *sql.DB, statements *dialect.Statements, id int64, topics map[string]*TopicStats) error {
	rows, err := db.QueryContext(ctx, statements.Members, id)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text []byte
		if err := rows.Scan(new(int64), new(string), &text, new(int64)); err != nil {
			return err
		}
		beat, err := spool.DecodeHeartbeat(text)
		if err != nil {
			return err
		}
		for topic, n := range beat.InFlight {
			if entry := topics[topic]; entry != nil {
				entry.InFlight = min(entry.InFlight+n, entry.Pending)
			}
		}
	}
	return rows.Err()
}
