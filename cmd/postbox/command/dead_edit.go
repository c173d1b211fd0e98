package command

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// editFlags say what is replaced.
type editFlags struct {
	payload, metadata string
	through           string
	again             admin.Again
	allow             bool
}

func (p *program) editCommand() *cobra.Command {
	var flags editFlags
	cmd := &cobra.Command{
		Use: "edit ID --payload-file FILE", Short: "Replace the payload or metadata of a dead letter, and requeue it",
		Long: `Replace the payload or metadata of a dead letter's message, and let it be handled
again, with all its attempts. It goes where "postbox dead requeue" lets it go.` + againHelp + `

The message keeps its id, topic and ordering key, and names the letter in its
metadata "postbox_edited_from". The letter keeps what it has, and is resolved, so
that no second edit of it is possible. The audit log names the edit.

The payload is the whole content of the file, byte for byte. The metadata is a
file with one JSON object whose values are texts, and replaces all metadata.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			ids, err := idsOf(args)
			if err != nil {
				return err
			}
			return s.edit(ids[0], flags)
		}),
	}
	cmd.Flags().StringVar(&flags.payload, "payload-file", "", "file with the new payload")
	cmd.Flags().StringVar(&flags.metadata, "metadata-file", "", "file with the new metadata, a JSON object")
	nameVar(cmd.Flags(), &flags.through, "through", `outbox that publishes the messages of inboxes again, "outbox" unless set`)
	againVar(cmd, &flags.again)
	cmd.Flags().BoolVar(&flags.allow, "allow-edit", false, "required: the handler will get a message that no producer has written")
	return cmd
}

func (s *session) edit(id int64, flags editFlags) error {
	if !flags.allow {
		return usagef("--allow-edit is missing: the handler will get a message that no producer has written")
	}
	edit, err := flags.read()
	if err != nil {
		return err
	}
	a, err := admin.New(s.database, admin.Config{Outbox: flags.through, Actor: s.actor, AllowEdit: true}, nil)
	if err != nil {
		return err
	}
	letter, err := a.DeadLetter(s.cmd.Context(), id)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("dead letter %d, message %s of %s, topic %s", id, nameCell(letter.MessageID), originOf(letter.Consumer, letter.Target), nameCell(letter.Topic))
	question := "Edit and requeue " + what + "?"
	if text := behind(s.cmd.Context(), a, id); text != "" {
		question = "It goes behind " + text + ".\n" + question
	}
	if err := s.confirm(question, replacement(edit)); err != nil {
		return err
	}
	if _, err := a.Requeue(s.cmd.Context(), admin.Filter{ID: id}, edit); err != nil {
		return err
	}
	return s.one(outcomeRecord{Action: "edit", Done: 1}, "1 dead letter edited and requeued.\n")
}

// replacement says for people what an edit replaces, and what it keeps.
func replacement(edit admin.Again) string {
	payload, metadata := "the payload as it is", "the metadata as it is"
	if edit.Payload != nil {
		payload = "new payload of " + count(len(edit.Payload), "byte")
	}
	if edit.Metadata != nil {
		metadata = "new metadata of " + count(len(edit.Metadata), "value")
	}
	return payload + " and " + metadata
}

// read reads the files.
func (f editFlags) read() (edit admin.Again, err error) {
	edit = f.again
	if f.payload == "" && f.metadata == "" {
		return edit, usagef("--payload-file and --metadata-file are missing: name one of them, or use \"postbox dead requeue\"")
	}
	if f.payload != "" {
		if edit.Payload, err = os.ReadFile(f.payload); err != nil {
			return edit, usage(fmt.Errorf("--payload-file: %w", err))
		}
		if edit.Payload == nil {
			edit.Payload = []byte{}
		}
	}
	if f.metadata != "" {
		text, err := os.ReadFile(f.metadata)
		if err != nil {
			return edit, usage(fmt.Errorf("--metadata-file: %w", err))
		}
		if err := json.Unmarshal(text, &edit.Metadata); err != nil || edit.Metadata == nil {
			return edit, usagef("--metadata-file: %q is not a JSON object whose values are texts", f.metadata)
		}
	}
	return edit, nil
}
