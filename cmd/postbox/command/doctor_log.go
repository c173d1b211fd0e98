package command

import (
	"context"
	"database/sql"
	"errors"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// checkLog looks at the slot for messages that are in the log alone, if the log was set up for them.
func (s *session) checkLog(ctx context.Context) ([]finding, error) {
	if !s.statements.Kind.Can().Tails {
		return nil, nil
	}
	var position dialect.LogPosition
	err := s.db.QueryRowContext(ctx, s.statements.LogPosition).Scan(new(string), &position.Position, &position.Part, &position.Epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	status, err := pgtail.InspectOutbox(ctx, s.database, pgtail.OutboxConfig{})
	if err != nil {
		return nil, err
	}
	var found []finding
	for _, about := range logSubjects {
		found = append(found, logFindings(status, about)...)
	}
	return found, nil
}
