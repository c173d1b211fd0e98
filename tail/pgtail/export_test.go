package pgtail

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// LookForRetained sets how often a Tail looks at how much log the server keeps.
func (t *Tail) LookForRetained(every time.Duration) { t.retainedInterval = every }

// LookForRetained sets how often an Outbox looks at how much log the server keeps, and at its publication.
func (o *Outbox) LookForRetained(every time.Duration) { o.retainedInterval = every }

// OnConnect calls a function each time that the Outbox has connected, which is after it has found its slot.
func (o *Outbox) OnConnect(do func()) {
	o.address.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		do()
		return nil
	}
}
