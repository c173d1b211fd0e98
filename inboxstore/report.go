package inboxstore

import "context"

// ContextWithReport is for stores other than [Store]: it returns the context of a message that is handed out, in which
// [Fail] leaves the handler's error, and a function that returns that error after the Nack, or [ErrNacked] where nobody
// left one.
func ContextWithReport(ctx context.Context) (reporting context.Context, cause func() error) {
	r := &report{}
	return context.WithValue(ctx, reportKey{}, r), r.take
}
