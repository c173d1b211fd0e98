package command

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// stuckRecord is a stuck key.
type stuckRecord struct {
	Key         string        `json:"key"`
	KeyBase64   []byte        `json:"key_base64,omitempty"` // set if the key is not UTF-8
	Since       time.Time     `json:"since"`
	PausedSince time.Time     `json:"paused_since,omitzero"`
	Behind      int           `json:"behind"`
	MoreBehind  bool          `json:"more_behind"`
	Error       string        `json:"error,omitempty"`
	Head        messageRecord `json:"head"`
}

func (p *program) keysStuckCommand() *cobra.Command {
	var target targetFlags
	var limit int
	cmd := &cobra.Command{
		Use: "stuck", Short: "List the keys whose first message has failed, or that are paused",
		Long: `List the keys of which nothing is handled now, because their first message has
failed or because they are paused. The key that has been stuck for longest is at
the top. HEAD is the id of the first message, NEXT is its next attempt, and
BEHIND is how many ready messages wait behind it: with a plus sign, there may be
more, since at most 20,000 messages are looked at.

If the cause is mended, let the head be tried now with "postbox messages
run-now", or let the key go on with "postbox keys resume". If the head can never
be handled, make it a dead letter with "postbox messages bury".`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error {
			if limit < 1 || limit > pageLimit {
				return usagef("--limit: %d is not between 1 and %d: use a number in this range", limit, pageLimit)
			}
			a, err := s.admin("")
			if err != nil {
				return err
			}
			keys, err := a.StuckKeys(s.cmd.Context(), admin.Filter{Target: target.one(), Limit: limit})
			if err != nil {
				return err
			}
			return s.listStuck(keys, limit)
		}),
	}
	target.addTo(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "largest number of keys")
	return cmd
}

func (s *session) listStuck(keys []admin.StuckKey, limit int) error {
	list := s.list("KEY", "SINCE", "HEAD", "STATUS", "TOPIC", "ATTEMPTS", "NEXT", "BEHIND", "LAST ERROR")
	for _, k := range keys {
		record := stuckRecord{
			k.Key, binary(k.Key), utc(k.Since), utc(k.PausedSince), k.Behind, k.MoreBehind, k.Error, messageRecordOf(k.Head),
		}
		record.Head.Cursor = "" // this list has no pages
		status := string(k.Head.Status)
		if !k.PausedSince.IsZero() {
			status += ", key paused"
		}
		behind := number(k.Behind)
		if k.MoreBehind {
			behind += "+"
		}
		err := list.add(record, nameCell(k.Key), moment(k.Since), number(k.Head.ID), status, nameCell(k.Head.Topic),
			number(k.Head.Attempts), moment(k.Head.DueAt), behind, short(k.Error))
		if err != nil {
			return err
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if len(keys) == limit {
		s.progress("There may be more, whose first messages were written later: raise --limit.")
	}
	return nil
}
