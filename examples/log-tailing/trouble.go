package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"
)

// forwardInTrouble runs two forwarders until ctx ends. The one that reads the log is replaced, and
// its connection is cut now and then.
func (w *world) forwardInTrouble(ctx context.Context) error {
	running, runningCtx := errgroup.WithContext(ctx)
	for range 2 {
		running.Go(func() error {
			for runningCtx.Err() == nil {
				if err := w.forwardFor(runningCtx, 3*time.Second); err != nil {
					return err
				}
			}
			return nil
		})
	}
	running.Go(func() error {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-runningCtx.Done():
				return nil
			case <-tick.C:
				if err := w.cut(runningCtx); err != nil {
					return err
				}
			}
		}
	})
	return running.Wait()
}

// forwardFor runs a forwarder for some time.
func (w *world) forwardFor(ctx context.Context, life time.Duration) error {
	ctx, end := context.WithTimeout(ctx, life)
	defer end()
	return w.forward(ctx)
}

// cut ends the connection over which the log is sent, as a restart of the server does.
func (w *world) cut(ctx context.Context) error {
	_, err := w.db.ExecContext(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database() AND slot_name LIKE 'postbox_%' AND active")
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("cut the connection of the log: %w", err)
	}
	return nil
}

// errRefused is an error that no classifier knows.
var errRefused = errors.New("refused")

// refusesSome is a publisher that refuses some calls. Meanwhile the later events of their customers
// wait.
type refusesSome struct{ message.Publisher }

// Publish publishes the messages, unless it refuses the first one.
func (p refusesSome) Publish(topic string, messages ...*message.Message) error {
	const one, in = 0, 15
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, messages[0].UUID, time.Now().UnixMilli()/200) // another decision a fifth of a second later
	if h.Sum32()%in == one {
		return errRefused
	}
	return p.Publisher.Publish(topic, messages...)
}
