package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// company is who shares the lanes of a drainer. Two services that have the same name for an outbox,
// or for a queue, share its messages without meaning to, and each of them loses those that the
// other one takes. So each process says in its heartbeat what it does with messages, and looks at
// what the others say when their number has changed.
type company struct {
	members int    // how many there were at the last look
	told    string // what the log says of them
}

var errOthers = errors.New("processes that do something else with its messages share it: if that is no deployment, give each service a name of its own for it, or a Prefix")

// look logs once that others do something else.
func (c *company) look(ctx context.Context, d *Drainer) error {
	if d.members == c.members {
		return nil
	}
	c.members = d.members
	others, err := d.others(ctx)
	if err != nil {
		return fmt.Errorf("read the members of spool %q: %w", d.spool.Name(), err)
	}
	if told := strings.Join(others, ", "); told != c.told {
		if c.told = told; told != "" {
			d.logger.Error("Postbox shares messages with processes of another kind", errOthers, watermill.LogFields{"spool": d.spool.Name(), "this": d.config.Work, "others": told})
		}
	}
	return nil
}

// others returns what the other members do, unless it is the same.
func (d *Drainer) others(ctx context.Context) (others []string, err error) {
	rows, err := d.db.QueryContext(ctx, d.spool.Statements.MembersOf, d.id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var holder string
		var text []byte
		var until int64
		if err := rows.Scan(&holder, &text, &until); err != nil {
			return nil, err
		}
		if beat, err := spool.DecodeHeartbeat(text); err == nil && beat.Work != "" && beat.Work != d.config.Work {
			others = append(others, beat.Work)
		}
	}
	slices.Sort(others)
	return slices.Compact(others), rows.Err()
}
