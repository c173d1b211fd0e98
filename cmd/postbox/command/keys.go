package command

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// keyRecord is a paused key.
type keyRecord struct {
	Key         string    `json:"key"`
	KeyBase64   []byte    `json:"key_base64,omitempty"` // set if the key is not UTF-8
	PausedSince time.Time `json:"paused_since"`
	PausedBy    string    `json:"paused_by,omitempty"`
	Reason      string    `json:"reason,omitempty"`
}

func (p *program) keysCommand() *cobra.Command {
	return group("keys", "List, pause and resume ordering keys, and find stuck ones", `List, pause and resume ordering keys, and find those that are stuck.

The keys are those of the outbox "outbox", unless --outbox or --queue names
another one. A key with bytes that cannot be typed is written as the lists print
it: postbox keys resume '"customer\xff"'.`,
		p.keysListCommand(), p.keysStuckCommand(), p.keysPauseCommand(), p.keysResumeCommand())
}

func (p *program) keysListCommand() *cobra.Command {
	var target targetFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List the paused keys", Long: "List the paused keys, the one that was paused first at the top.",
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			keys, err := a.Paused(s.cmd.Context(), target.one())
			if err != nil {
				return err
			}
			list := s.list("KEY", "PAUSED SINCE", "BY", "REASON")
			for _, key := range keys {
				if key.Key == "" { // a topic
					continue
				}
				if err := list.add(keyRecord{key.Key, binary(key.Key), utc(key.Since), key.By, key.Reason}, nameCell(key.Key), moment(key.Since), nameCell(key.By), short(key.Reason)); err != nil {
					return err
				}
			}
			return list.end()
		}),
	}
	target.addTo(cmd)
	return cmd
}

func (p *program) keysPauseCommand() *cobra.Command {
	var target targetFlags
	var reason string
	cmd := &cobra.Command{
		Use: "pause KEY", Short: "Stop the messages with one ordering key",
		Long: "Stop the messages with one ordering key, in all processes, until the key is\nresumed. Other messages go on.",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			key, err := nameOf(args[0])
			if err != nil {
				return err
			}
			if err := a.Pause(s.cmd.Context(), admin.Filter{Target: target.one(), Key: key}, reason); err != nil {
				return err
			}
			return s.changedKey(target.one(), "pause key", key, "is paused")
		}),
	}
	target.addTo(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, which the list of paused keys shows")
	return cmd
}

func (p *program) keysResumeCommand() *cobra.Command {
	var target targetFlags
	cmd := &cobra.Command{
		Use: "resume KEY", Short: "Let the messages with one ordering key go on",
		Long: "Let the messages with one ordering key go on. A parked message of the key gets\nall its attempts again.",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			key, err := nameOf(args[0])
			if err != nil {
				return err
			}
			paused, err := a.Paused(s.cmd.Context(), target.one())
			if err != nil {
				return err
			}
			if err := a.Resume(s.cmd.Context(), admin.Filter{Target: target.one(), Key: key}); err != nil {
				return err
			}
			if !slices.ContainsFunc(paused, func(p admin.Paused) bool { return p.Key == key }) {
				s.progress("The key was not paused: check how it is written, with \"postbox keys list\". Only a parked message of it is changed.")
			}
			return s.changedKey(target.one(), "resume key", key, "goes on")
		}),
	}
	target.addTo(cmd)
	return cmd
}

// changedKey prints that a key was changed.
func (s *session) changedKey(target admin.Target, action, key, what string) error {
	record := changeRecord{Action: action, Target: target, Key: key}
	return s.one(record, fmt.Sprintf("Key %s of %s %s.\n", nameCell(key), record.Target, what))
}
