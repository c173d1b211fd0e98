package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// logRetainedMost is how many bytes of log doctor finds normal. A process that reads leaves much less.
const logRetainedMost = 1 << 30

// checkLog looks at the slot for messages that are in the log alone, if the log was set up for them.
func (s *session) checkLog(ctx context.Context) ([]finding, error) {
	if !s.statements.Kind.Can().Tails {
		return nil, nil
	}
	var name string
	var position dialect.LogPosition
	err := s.db.QueryRowContext(ctx, s.statements.LogPosition).Scan(&name, &position.Position, &position.Part, &position.Epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ours, active, invalid bool
	var confirmed, retained int64
	err = s.db.QueryRowContext(ctx, s.statements.OutboxSlot, name).Scan(&ours, &active, &invalid, &confirmed)
	if err == nil {
		err = s.db.QueryRowContext(ctx, s.statements.Retained, name).Scan(&retained)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && (invalid || !ours || confirmed > position.Position):
		return problem(fmt.Sprintf("the slot %s is gone, invalid or was made anew: messages that were in the log alone may be lost", name),
			"find out which messages are missing, publish them again, and then call pgtail.AcceptLoss"), nil
	case err != nil:
		return nil, err
	case !active:
		return problem(fmt.Sprintf("no process reads messages from the log, and the server keeps %d bytes of it for the slot %s", retained, name),
			"run a forwarder with a pgtail.Outbox in forwarder.Config.Tail, or remove the slot with pgtail.RemoveOutbox"), nil
	case retained > logRetainedMost:
		return []finding{{
			Status: findingNotice, Text: fmt.Sprintf("the server keeps %d bytes of log for the slot %s", retained, name),
			Fix: "look for transactions that have been open for long, and for errors in the log of the process that reads",
		}}, nil
	}
	return nil, nil
}
