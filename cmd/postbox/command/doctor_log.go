package command

import "context"

// checkLog looks at the slot for messages that are in the log alone, if the log was set up for them, or a set-up
// was cut off.
func (s *session) checkLog(ctx context.Context) ([]finding, error) {
	status, ok, err := s.logStatus(ctx, s.logDSN)
	if err != nil || !ok {
		return nil, err
	}
	var found []finding
	for _, about := range logSubjects {
		found = append(found, logFindings(status, about)...)
	}
	return found, nil
}
