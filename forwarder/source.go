package forwarder

import (
	"context"

	"github.com/postbox-go/watermill-postbox/internal/takeover"
)

// Source is a table of another outbox in the same database, from which a forwarder takes messages
// over. It is no interface for users to implement: package sources has those that there are.
type Source interface{ takeover.Source }

// takeOver takes messages over from a source as soon as the database can be used.
func (f *Forwarder) takeOver(ctx context.Context, source Source) {
	select {
	case <-f.drainer.Ready():
		source.TakeOver(ctx, takeover.Outbox{DB: f.db, Statements: f.statements, Spool: f.spool, Logger: f.logger})
	case <-ctx.Done():
	}
}
