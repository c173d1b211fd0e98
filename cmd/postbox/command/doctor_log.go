package command

import (
	"context"

	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// checkLog looks at the slot for messages that are in the log alone, if the log was set up for them.
func (s *session) checkLog(ctx context.Context) ([]finding, error) {
	if _, ok, err := s.logPosition(ctx); err != nil || !ok {
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
