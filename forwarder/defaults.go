package forwarder

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Defaults of the settings in [PublisherConfig] and [Config], which explain them.
const (
	defaultOutbox        = spool.DefaultOutbox
	defaultMaxPayload    = 16 << 20
	defaultConcurrency   = 64
	defaultBatchSize     = 1
	defaultMaxAttempts   = 10
	defaultCloseTimeout  = 30 * time.Second
	defaultFailuresInRow = circuit.FailuresInRow
	defaultOutageLimit   = circuit.OutageLimit
	defaultRetention     = 30 * 24 * time.Hour
)

// validateOutbox checks what a publisher and a forwarder of one outbox have in common.
func validateOutbox(outbox string) (err error) {
	if len(outbox) > maxOutboxName {
		err = errors.Join(err, fmt.Errorf("outbox %.60q: the name has more than %d bytes", outbox, maxOutboxName))
	}
	if nameErr := spool.CheckName(outbox); nameErr != nil {
		err = errors.Join(err, fmt.Errorf("outbox %w", nameErr))
	}
	if strings.HasPrefix(outbox, spool.QueuePrefix) {
		err = errors.Join(err, fmt.Errorf("outbox %q: names that begin with %q are reserved for the queues of an inbox: use another name", outbox, spool.QueuePrefix))
	}
	if strings.HasPrefix(outbox, spool.InboxPrefix) {
		err = errors.Join(err, fmt.Errorf("outbox %q: names that begin with %q are reserved for the histories of inboxes: use another name", outbox, spool.InboxPrefix))
	}
	return err
}

// maxOutboxName leaves room for the table prefix in the name of a NOTIFY channel, which has 63
// bytes at most.
const maxOutboxName = 30
