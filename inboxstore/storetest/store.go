package storetest

import (
	"io"

	"github.com/postbox-go/watermill-postbox/middleware"
)

// Store is the interface under test. Close can be called twice.
type Store interface {
	middleware.InboxStore
	middleware.DeferStore
	io.Closer
}
