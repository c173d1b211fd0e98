package forwarder

import (
	"context"

	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// Tail reads the log of a database for forwarders. It is no interface for users to implement:
// package pgtail has the only one. Several forwarders of a process can have the same Tail if their
// outboxes are in the same tables.
type Tail interface{ tail.Source }

// follow returns a feed for the drainer, nil without a Tail, and what the Tail needs to fill it.
func (f *Forwarder) follow(measured *meter.Spool) *tail.Feed {
	if given.Nil(f.config.Tail) {
		return nil
	}
	feed := tail.NewFeed()
	f.followed = tail.Outbox{
		DB: f.db, Statements: f.statements, Feed: feed, Meter: measured, Logger: f.logger,
	}
	return feed
}

// runTail reads the log until ctx ends. It returns an error if the log must be read and cannot be.
func (f *Forwarder) runTail(ctx context.Context) error {
	if f.followed.Feed == nil {
		return nil
	}
	return f.config.Tail.Follow(ctx, f.followed)
}
