package command

import (
	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// changeRecord says what was changed.
type changeRecord struct {
	Action string       `json:"action"`
	Target admin.Target `json:"target"`
	Key    string       `json:"key,omitempty"`
	Topic  string       `json:"topic,omitempty"`
}

// changed prints that a target was changed.
func (s *session) changed(target admin.Target, action, text string) error {
	return s.one(changeRecord{Action: action, Target: target}, text+"\n")
}

func (p *program) pauseCommand() *cobra.Command {
	var target targetFlags
	cmd := &cobra.Command{
		Use: "pause", Short: "Stop an outbox or a queue",
		Long: `Stop an outbox or a queue in all processes, also in those that start later.
Messages can still be written to it. Running handlers end, no attempt is
counted, and nothing is lost.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			if err := a.Pause(s.cmd.Context(), admin.Filter{Target: target.one(), All: true}); err != nil {
				return err
			}
			return s.changed(target.one(), "pause", "The "+target.one().String()+" is paused. Processes notice within a second.")
		}),
	}
	target.addTo(cmd)
	return cmd
}

func (p *program) resumeCommand() *cobra.Command {
	var target targetFlags
	cmd := &cobra.Command{
		Use: "resume", Short: "Let a paused outbox or queue go on",
		Long: `Let a paused outbox or queue go on. Keys and topics that are paused stay paused:
see "postbox keys" and "postbox topics".`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			if err := a.Resume(s.cmd.Context(), admin.Filter{Target: target.one(), All: true}); err != nil {
				return err
			}
			return s.changed(target.one(), "resume", "The "+target.one().String()+" goes on.")
		}),
	}
	target.addTo(cmd)
	return cmd
}
