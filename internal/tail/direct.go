package tail

import (
	"context"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Direct publishes messages of the log that have no row. It is safe for concurrent use.
type Direct interface {
	// Publish publishes the messages that neither the settings of operators nor the state of the broker hold back, and
	// reports for each of them whether the broker has acknowledged it. Messages of one key are published in their order, and
	// none after one that was not acknowledged. It returns within a few seconds, also if the broker does not answer, and
	// starts no call after ctx has ended.
	Publish(ctx context.Context, batch []*spool.Message, settings spool.Settings) (acknowledged []bool)
}
