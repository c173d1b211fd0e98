package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// worker keeps the accounts. There are several, as if each were a process of its own: they know
// nothing of each other and share the queue in the database.
type worker struct {
	name   string
	mishap *mishap
	store  *inboxstore.Store
	router *router.Router
	ended  chan error // what the router had to say at its end

	applied atomic.Int64
}

// pointsQueue has the activities that wait for their turn.
const pointsQueue = "points"

// startWorker returns a worker that works.
func startWorker(ctx context.Context, name string, p *pipes.Pipes, bus *noisyBus, mishap *mishap) (w *worker, err error) {
	w = &worker{name: name, mishap: mishap, ended: make(chan error, 1)}
	if w.store, err = inboxstore.New(p.Tables(prefix), inboxstore.Config{}, p.Logger); err != nil {
		return nil, err
	}
	if w.router, err = router.New(nil, router.Config{Store: w.store}, p.Logger); err != nil {
		return nil, err
	}
	w.router.Router().AddMiddleware(bus.countDelivery)
	subscriber, err := p.NewSubscriber("points", activityDone)
	if err != nil {
		return nil, err
	}
	// Each event is stored in the queue, once, and acked. From there the events of a user, who is
	// their ordering key, are handled one at a time and in their order, by whichever worker; users
	// do not wait for each other.
	_, err = w.router.AddQueueHandler(pointsQueue, activityDone, subscriber, "", w.apply, router.QueueConfig{
		Worker: queue.Config{
			Transactional: true,
			Concurrency:   4, // users at a time, each with a connection to the database
			Retry:         postbox.RetryProfile{Base: 10 * time.Millisecond, Cap: 100 * time.Millisecond},
			Tuning:        postbox.Tuning{PollMax: 50 * time.Millisecond}, // to hear soon of what another worker has stored
		},
	})
	if err != nil {
		return nil, err
	}
	go func() {
		w.ended <- w.router.Run(context.WithoutCancel(ctx)) // stop ends it
		close(w.ended)
	}()
	select {
	case <-w.router.Running():
		return w, nil
	case err := <-w.ended:
		return nil, errors.Join(err, w.store.Close())
	}
}

// stop lets the handlers under way end, and hands the rest over to the other workers. It can be
// called twice.
func (w *worker) stop() error { return errors.Join(w.router.Close(), <-w.ended, w.store.Close()) }

// apply handles an activity in the transaction of the queue. It reads, computes and writes without
// any lock or check of its own: it relies on being the only one who handles this user, and on the
// order.
func (w *worker) apply(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	var done activity
	if err := json.Unmarshal(msg.Payload, &done); err != nil {
		return nil, postbox.Permanent(err) // no retry can help, so it becomes a dead letter at once
	}
	var before account
	var position int64
	err := tx.QueryRowContext(ctx, "SELECT points, tier, applied FROM rewards_accounts WHERE user_id = $1", done.UserID).
		Scan(&before.points, &before.tier, &position)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = tx.ExecContext(ctx, "INSERT INTO rewards_accounts (user_id) VALUES ($1)", done.UserID)
	}
	if err != nil {
		return nil, fmt.Errorf("open the account: %w", err)
	}
	after := before.after(done)
	position++
	_, err = tx.ExecContext(ctx, "UPDATE rewards_accounts SET points = $1, tier = $2, applied = $3 WHERE user_id = $4",
		after.points, after.tier, position, done.UserID)
	if err != nil {
		return nil, fmt.Errorf("change the account: %w", err)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO rewards_journal (user_id, position, seq, worker) VALUES ($1, $2, $3, $4)",
		done.UserID, position, done.Seq, w.name)
	if err != nil {
		return nil, fmt.Errorf("note in the journal: %w", err)
	}
	if err := w.mishap.strike(msg.UUID); err != nil { // at the worst moment, when all is written
		return nil, err
	}
	w.applied.Add(1)
	return nil, nil
}
