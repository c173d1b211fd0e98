package inboxstore

import (
	"cmp"
	"context"

	"github.com/postbox-go/watermill-postbox/internal/report"
)

// ContextWithReport is for stores other than [Store]: it returns the context of a message that is handed out, in which
// [Fail] leaves the handler's error, and a function that returns that error after the Nack, or [ErrNacked] where none was left.
func ContextWithReport(ctx context.Context) (reporting context.Context, cause func() error) {
	reporting, r := report.New(ctx)
	return reporting, func() error { return cmp.Or(r.Err(), ErrNacked) }
}
