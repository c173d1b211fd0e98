package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// checkTimeout bounds the check at start.
const checkTimeout = 10 * time.Second

// check returns an error if messages wait, or would be stored, that no process would handle. If the
// database is away, the router starts all the same: everything waits for it.
func (r *Router) check(ctx context.Context) error {
	if unhandled := r.withoutHandler(r.fed); len(unhandled) > 0 {
		return fmt.Errorf("AddDeferral stores messages in queues without a handler: %s: add a handler for each, or "+
			"name the queue in Config.OtherQueues if its handler runs in another process", strings.Join(unhandled, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	stored, err := inbox.CoreOf(r.config.Store).PendingQueues(ctx)
	if errors.Is(err, spool.ErrNoTables) {
		return err
	}
	if err != nil {
		r.logger.Error("Postbox could not check whether each queue has a handler", err, nil)
		return nil
	}
	orphans := r.withoutHandler(stored)
	if len(orphans) == 0 {
		return nil
	}
	return fmt.Errorf("these queues have messages and no handler: %s: add a handler for each, or "+
		"name the queue in Config.OtherQueues if its handler runs in another process", strings.Join(orphans, ", "))
}

// withoutHandler returns the queues that are known to have no handler, here or elsewhere.
func (r *Router) withoutHandler(queues []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(queues), func(queue string) bool {
		return slices.Contains(r.queues, queue) || slices.Contains(r.config.OtherQueues, queue)
	})
}

// unused is the publisher of handlers that publish nothing.
type unused struct{}

// Publish refuses.
func (unused) Publish(topic string, _ ...*message.Message) error {
	return fmt.Errorf("publish to topic %.300q: the handler was added without a publish topic", topic)
}

// Close does nothing.
func (unused) Close() error { return nil }
