package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// activityDone is the topic of the events.
const activityDone = "rewards.activities"

// shop is where users buy, bring back, and get a bonus now and then.
type shop struct {
	db     *sql.DB
	outbox message.Publisher
}

// record commits an activity and its event. The update of the user's row makes the activities of a
// user wait for each other, so their numbers are in the order of their commits; and so, by the
// ordering key, are their events.
func (s shop) record(ctx context.Context, done activity) error {
	return postbox.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, "UPDATE rewards_users SET seq = seq + 1 WHERE id = $1 RETURNING seq", done.UserID).Scan(&done.Seq)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO rewards_activities (user_id, seq, kind, euros) VALUES ($1, $2, $3, $4)",
			done.UserID, done.Seq, done.Kind, done.Euros)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(done)
		if err != nil {
			return err
		}
		event := message.NewMessageWithContext(ctx, postbox.NewMessageID(), payload) // the transaction is in ctx
		event.Metadata.Set(postbox.MetadataOrderingKey, done.UserID)
		return s.outbox.Publish(activityDone, event)
	})
}

const (
	customersAtATime = 8
	dearest          = 400 // euros
)

// serve lets new users do as many things as planned, several at a time.
func (s shop) serve(ctx context.Context, p plan) error {
	run, users := rand.IntN(1_000_000), make([]string, p.users) //nolint:gosec // any dice will do
	for i := range users {
		users[i] = fmt.Sprintf("user %06d-%02d", run, i)
		if _, err := s.db.ExecContext(ctx, "INSERT INTO rewards_users (id) VALUES ($1)", users[i]); err != nil {
			return fmt.Errorf("add a user: %w", err)
		}
	}
	atATime, ctx := errgroup.WithContext(ctx)
	atATime.SetLimit(customersAtATime)
	for range p.activities {
		atATime.Go(func() error { return s.record(ctx, someActivity(users)) })
	}
	return atATime.Wait()
}

func someActivity(users []string) activity {
	kinds := []string{purchase, purchase, purchase, refund, bonus}
	return activity{
		UserID: users[rand.IntN(len(users))], //nolint:gosec // any dice will do
		Kind:   kinds[rand.IntN(len(kinds))], //nolint:gosec // any dice will do
		Euros:  1 + rand.Int64N(dearest),     //nolint:gosec // any dice will do
	}
}
