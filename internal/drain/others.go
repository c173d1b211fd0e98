package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// otherMembers are the processes that share the lanes with this one. Two services may use the same
// name for an outbox or a queue by accident. Each of them then loses the messages that the other
// one handles. So each process states in its heartbeat what it does with messages. Whenever the
// number of members has changed, a process compares the statements of the others with its own.
type otherMembers struct {
	members  int    // their number when they were compared
	reported string // the statements that the last line of the log names
}

var errOtherWork = errors.New("another process does something else with the messages that it shares with this one: give each service its own name for the outbox or queue, or its own Prefix. During a deployment this is expected")

// compare logs once that other members do something else.
func (o *otherMembers) compare(ctx context.Context, le *lease) error {
	if le.members == o.members {
		return nil
	}
	work, err := le.otherWork(ctx)
	if err != nil {
		return fmt.Errorf("read the members of spool %q: %w", le.spool.Name(), err)
	}
	o.members = le.members
	named := strings.Join(work, ", ")
	if named != "" && named != o.reported {
		le.logger.Error("Postbox shares messages with processes of another kind", errOtherWork, watermill.LogFields{"spool": le.spool.Name(), "this": le.config.Work, "others": named})
	}
	o.reported = named
	return nil
}

// otherWork returns what other members do with messages, if that differs from what this one does.
func (le *lease) otherWork(ctx context.Context) (work []string, err error) {
	query := dialect.Query{Text: le.spool.Statements.Members, Args: []any{le.id.Load()}}
	err = spool.Each(ctx, le.db, query, func(scan spool.Scan) error {
		var text []byte
		err := scan(new(int64), new(string), &text, new(int64))
		if beat, wrong := spool.DecodeHeartbeat(text); wrong == nil && beat.Work != "" && beat.Work != le.config.Work {
			work = append(work, beat.Work)
		}
		return err
	})
	slices.Sort(work)
	return slices.Compact(work), err
}
