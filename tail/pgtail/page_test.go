package pgtail_test

import (
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// The code of docs/log-tailing.md, which needs only to compile.
var _ = pageForwarder

func pageForwarder(database postbox.Database, publisher message.Publisher, logger watermill.LoggerAdapter) (*forwarder.Forwarder, error) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	follower, err := pgtail.New(pgtail.Config{DSN: "postgres://postbox_tail@db:5432/shop"})
	must(err)
	f, err := forwarder.New(database, publisher, forwarder.Config{Tail: follower}, logger)
	return f, err
}
