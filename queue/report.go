package queue

import (
	"context"

	"github.com/postbox-go/watermill-postbox/internal/report"
)

// ErrNacked is what the failure record says of a message that was nacked without [Fail].
var ErrNacked = report.ErrNacked

// Fail tells the queue that delivered a message why its handler fails: a Nack carries no error. Call it with the
// message's context before the Nack; the middlewares Process and Guard do so. It reports false where the message
// came from elsewhere.
//
// If the context carries a transaction of a queue or of an inbox, that is rolled back, even if the message is acked afterwards, and
// err is the attempt's failure.
func Fail(ctx context.Context, err error) bool { return report.Fail(ctx, err) }

// ContextWithReport is for stores other than [inboxstore.Store]: it returns the context of a message that is handed out, in which
// [Fail] leaves the handler's error, and a function that returns that error after the Nack, or [ErrNacked] where none was left.
func ContextWithReport(ctx context.Context) (reporting context.Context, cause func() error) {
	reporting, r := report.New(ctx)
	return reporting, r.Cause
}
