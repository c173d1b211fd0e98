package middleware

import (
	"context"
	"database/sql"
	"reflect"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
)

type insideKey struct{}

// inside returns the context of a message that an inbox handles. The subscriber of watermill-sql
// consumes in a transaction that it commits in the middle of a handler when it closes, or when its
// deadline for an ack passes, and what a handler wrote there would not commit with the claim. So a
// handler that asks v3 for that transaction gets that of the inbox, and one that asks v4, whose
// transaction has a type of its own, gets none.
func inside(ctx context.Context) context.Context { return insideContext{ctx} }

type insideContext struct{ context.Context } //nolint:containedctx // it is one

func (c insideContext) Value(key any) any {
	if key == (insideKey{}) {
		return true
	}
	value := c.Context.Value(key)
	if value == nil || !strings.HasPrefix(reflect.TypeOf(key).PkgPath(), "github.com/ThreeDotsLabs/watermill-sql/") {
		return value
	}
	if _, standard := value.(*sql.Tx); standard {
		if tx, found := postbox.TxFromContext(c.Context); found {
			return tx
		}
	}
	return nil
}
