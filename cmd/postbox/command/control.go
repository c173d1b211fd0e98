package command

import (
	"slices"
	"time"

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

// pauseFlags say why and until when something is paused.
type pauseFlags struct{ reason, until string }

func (f *pauseFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, which lists of pauses show")
	cmd.Flags().StringVar(&f.until, "until", "", "when the pause ends by itself, such as 04:00 in UTC, +2h or RFC 3339, by the database's clock")
}

// pause pauses what the filter names, and returns what is said of the end.
func (s *session) pause(a *admin.Admin, filter admin.Filter, flags pauseFlags) (end string, err error) {
	if filter.Until, err = s.clock(s.cmd.Context(), "until", flags.until); err != nil {
		return "", err
	}
	if !filter.Until.IsZero() {
		end = " until " + moment(filter.Until) + ", for " + span(time.Until(filter.Until).Round(time.Minute))
	}
	return end, a.Pause(s.cmd.Context(), filter, flags.reason)
}

func (p *program) pauseCommand() *cobra.Command {
	var target targetFlags
	var flags pauseFlags
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
			end, err := s.pause(a, admin.Filter{Target: target.one(), All: true}, flags)
			if err != nil {
				return err
			}
			return s.changed(target.one(), "pause", "The "+target.one().String()+" is paused"+end+". Processes notice within a second.")
		}),
	}
	target.addTo(cmd)
	flags.addTo(cmd)
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
			queues, err := a.Queues(s.cmd.Context())
			if err != nil {
				return err
			}
			if err := a.Resume(s.cmd.Context(), admin.Filter{Target: target.one(), All: true}); err != nil {
				return err
			}
			if slices.ContainsFunc(queues, func(q admin.QueueInfo) bool { return q.Target == target.one() && q.Pause.Since.IsZero() }) {
				s.progress("It was not paused: see \"postbox queues\", and name another one with --outbox or --queue.")
			}
			return s.changed(target.one(), "resume", "The "+target.one().String()+" goes on.")
		}),
	}
	target.addTo(cmd)
	return cmd
}
