package handle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// grace is how long a statement may go on after its context has ended. The driver has asked the server to cancel it.
const grace = 2 * time.Second

// Watch closes a connection that still works some time after the context has ended, until stop is called. It is for a
// transaction that begins with the context on a pool of the user, and does nothing with drivers that do so themselves.
func Watch(ctx context.Context, conn *sql.Conn) (stop func()) {
	var socket net.Conn
	_ = conn.Raw(func(driverConn any) error {
		if known, is := driverConn.(driver.Conn); is {
			socket = dialect.DeafSocket(known)
		}
		return nil
	})
	return watch(ctx, socket, func() {})
}

func watch(ctx context.Context, socket net.Conn, cut func()) (stop func()) {
	if socket == nil || ctx.Done() == nil {
		return func() {}
	}
	over := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		select {
		case <-over:
		case <-time.After(grace):
			cut()
			_ = socket.Close()
		}
	})
	return sync.OnceFunc(func() {
		forget()
		close(over)
	})
}
