package pgtail

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Loss is what [AcceptLoss] has given up. The times are those of the server.
type Loss struct {
	// Since is when the position in the log was stored last. Everything before that position is published or stored. A forwarder that lagged then had read less, so look for
	// missing messages from a little earlier on: inboxes leave out what they have had.
	Since time.Time
	// Until is after the last message that may be missing was committed.
	Until time.Time
	// Position is the place in the log, such as "0/16B3748", from which on messages are read. Those that were committed before it, and not stored, are lost.
	Position string
}

// String says what is given up.
func (l Loss) String() string {
	return fmt.Sprintf("messages from %s to %s that were committed to the log before %s, and not stored", l.Since.Format(lossTime), l.Until.Format(lossTime), l.Position)
}

// lossTime is precise enough for the columns of business tables that the times are compared with.
const lossTime = "2006-01-02T15:04:05.000000Z07:00"

// loss returns what is given up if the log is read from a position on. It is called when the slot keeps what follows, so that Until is not too early.
func (a *administration) loss(ctx context.Context, begin int64) (loss Loss, err error) {
	var now int64
	if err := a.db.QueryRowContext(ctx, a.statements.Clock).Scan(&now); err != nil {
		return loss, fmt.Errorf("read the clock of the server: %w", err)
	}
	return Loss{Since: time.UnixMicro(a.savedAt).UTC(), Until: time.UnixMicro(now).UTC(), Position: fmt.Sprintf("%X/%X", begin>>32, begin&math.MaxUint32)}, nil
}
