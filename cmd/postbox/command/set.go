package command

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// settingsRecord are the settings that operators have stored. What is left out is configured in
// each process.
type settingsRecord struct {
	PageSize    int    `json:"page_size,omitempty"`
	Concurrency int    `json:"concurrency,omitempty"`
	PollMax     string `json:"poll_max,omitempty"`
	Attempts    int    `json:"attempts,omitempty"` // -1 is unlimited
	// No limit is -1.
	PerSecond     float64 `json:"per_second,omitempty"`
	MaxConcurrent int     `json:"max_concurrent,omitempty"`
	History       string  `json:"history,omitempty"`
	Retention     string  `json:"retention,omitempty"`
}

func settingsRecordOf(s admin.Settings) settingsRecord {
	record := settingsRecord{PageSize: s.PageSize, Concurrency: s.Concurrency, Attempts: s.Attempts, PerSecond: s.PerSecond, MaxConcurrent: s.MaxConcurrent}
	if s.PollMax != 0 {
		record.PollMax = s.PollMax.String()
	}
	record.History, record.Retention = keepText(s.History, off), keepText(s.Retention, forever)
	return record
}

// keepText prints how long something is kept; a negative time has a word of its own.
func keepText(d time.Duration, negative string) string {
	switch {
	case d < 0:
		return negative
	case d == 0:
		return ""
	default:
		return d.String()
	}
}

func (p *program) setCommand() *cobra.Command {
	var target targetFlags
	var flags setFlags
	cmd := &cobra.Command{
		Use: "set", Short: "Show and change the settings of an outbox, a queue or an inbox",
		Long: `Show the settings that operators have stored for an outbox or a queue, and
change those that a flag names. They override the configuration of all
processes, which apply them within a second, those of inboxes within 30. The
value "default" leaves a setting to each process again.

An inbox has one setting, its history, which is how long the messages are kept
that its consumer has handled. It has an effect if a history is configured.

What is older than a new history or retention is deleted, so a change of
either needs a confirmation.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			return s.set(s.cmd.Context(), a, target.one(), flags)
		}),
	}
	target.addWithInboxTo(cmd)
	f := cmd.Flags()
	f.StringVar(&flags.pageSize, "page-size", "", "number of messages to read at once, up to 10000")
	f.StringVar(&flags.concurrency, "concurrency", "", "number of handlers at a time in each process, up to 10000")
	f.StringVar(&flags.pollMax, "poll-max", "", "longest pause between two polls that find nothing, from 1ms to 1h")
	f.StringVar(&flags.attempts, "attempts", "", "how often a message may fail, or unlimited")
	f.StringVar(&flags.perSecond, "per-second", "", "most messages that start in a second in all processes together, from 0.00001 on, or none")
	f.StringVar(&flags.maxConcurrent, "max-concurrent", "", "most handlers at a time in all processes together, or none")
	f.StringVar(&flags.history, "history", "", "how long messages that are done are kept, such as 7d, or off")
	f.StringVar(&flags.retention, "retention", "", "how long dead letters are kept, such as 30d, or forever")
	return cmd
}

func (s *session) set(ctx context.Context, a *admin.Admin, target admin.Target, flags setFlags) error {
	if target.Kind == kindInbox && flags != (setFlags{history: flags.history}) {
		return usagef("no message waits for an inbox, so it has one setting: leave out all but --history")
	}
	if _, err := flags.apply(admin.Settings{}); err != nil {
		return err
	}
	settings, done, err := storedSettings(ctx, a, target)
	if err != nil {
		return err
	}
	if flags != (setFlags{}) {
		if flags.history != "" && done > 0 || flags.retention != "" {
			question := fmt.Sprintf("Change how long %s keeps messages? What is older is deleted.", target)
			if err := s.confirm(question); err != nil {
				return err
			}
		}
		settings, err = a.ChangeSettings(ctx, target, func(stored *admin.Settings) (err error) {
			*stored, err = flags.apply(*stored)
			return err
		})
		if err != nil {
			return err
		}
	}
	record := settingsRecordOf(settings)
	return s.one(struct {
		Target   admin.Target   `json:"target"`
		Settings settingsRecord `json:"settings"`
	}{target, record}, record.text(target))
}

// storedSettings reads the settings of one target, and how many messages its history has. The
// package admin has them only in the list of all.
func storedSettings(ctx context.Context, a *admin.Admin, target admin.Target) (settings admin.Settings, done int, err error) {
	all, err := a.Queues(ctx)
	if err != nil {
		return admin.Settings{}, 0, err
	}
	for _, info := range all {
		if info.Target == target {
			return info.Settings, info.Done, nil
		}
	}
	return admin.Settings{}, 0, notFound(target)
}

func notFound(target admin.Target) error {
	lists := "queues"
	if target.Kind == kindInbox {
		lists = "inboxes"
	}
	return fmt.Errorf("there is no %s: %w: \"postbox %s\" lists the names", target, admin.ErrNotFound, lists)
}

// text lists the settings for people.
func (r settingsRecord) text(target admin.Target) string {
	orWord := func(n float64, negative string, write func(float64) string) string {
		switch {
		case n == 0:
			return unset
		case n < 0:
			return negative
		default:
			return write(n)
		}
	}
	whole := func(n int, negative string) string { return orWord(float64(n), negative, decimal) }
	title := "Settings of " + target.String() + ":\n"
	if target.Kind == kindInbox {
		return title + fields(field{"history", orDefault(r.History)})
	}
	return title + fields(
		field{"page-size", whole(r.PageSize, unset)}, field{"concurrency", whole(r.Concurrency, unset)}, field{"poll-max", orDefault(r.PollMax)},
		field{"attempts", whole(r.Attempts, unlimited)}, field{"per-second", orWord(r.PerSecond, none, rate)}, field{"max-concurrent", whole(r.MaxConcurrent, none)},
		field{"history", orDefault(r.History)}, field{"retention", orDefault(r.Retention)},
	)
}

func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// rate is a number of messages a second, with the pause between two of them if that is longer than
// a second: an outbox with a low limit seems to hang.
func rate(n float64) string {
	if n >= 1 {
		return decimal(n)
	}
	return decimal(n) + ", one message in " + span(time.Duration(float64(time.Second)/n))
}

// orDefault is the text of a setting, or the word for one that is not stored.
func orDefault(text string) string {
	if text == "" {
		return unset
	}
	return text
}
