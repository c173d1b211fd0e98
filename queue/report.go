package queue

import (
	"context"

	"github.com/postbox-go/watermill-postbox/internal/report"
)

// Fail tells the queue that delivered a message why its handler failed, because a Nack carries no
// error. Call it with the message's context before the Nack; the middlewares Process and Guard do
// so. It reports false if the message does not come from a queue.
//
// If the context carries a transaction of a queue or of an inbox, that transaction is rolled back,
// even if the message is acked afterwards. err is then the attempt's failure.
func Fail(ctx context.Context, err error) bool { return report.Fail(ctx, err) }

// ContextWithReport is for stores other than [inboxstore.Store]. It returns the context for a
// message that is handed out, in which [Fail] stores the handler's error. It also returns a
// function that returns that error after the Nack, or one that says that there is none.
func ContextWithReport(ctx context.Context) (reporting context.Context, cause func() error) {
	reporting, r := report.New(ctx)
	return reporting, r.Cause
}
