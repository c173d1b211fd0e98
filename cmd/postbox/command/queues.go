package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// queueRecord is the state of an outbox or a queue.
type queueRecord struct {
	targetRecord
	Lanes        int            `json:"lanes"`
	Processes    int            `json:"processes"`
	PausedSince  time.Time      `json:"paused_since,omitzero"`
	PausedKeys   int            `json:"paused_keys"`
	PausedTopics int            `json:"paused_topics"`
	Pending      int            `json:"pending"`
	Due          int            `json:"due"`
	InFlight     int            `json:"in_flight"`
	Failing      int            `json:"failing"`
	Parked       int            `json:"parked"`
	Dead         int            `json:"dead"`
	Done         int            `json:"done"`
	OldestAge    float64        `json:"oldest_age_seconds"`
	Settings     settingsRecord `json:"settings,omitzero"`
}

func queueRecordOf(info admin.QueueInfo) queueRecord {
	return queueRecord{
		targetRecord: recordOf(info.Target), Lanes: info.Lanes, Processes: info.Processes,
		PausedSince: utc(info.PausedSince), PausedKeys: info.PausedKeys, PausedTopics: info.PausedTopics,
		Pending: info.Pending, Due: info.Due, InFlight: info.InFlight, Failing: info.Failing, Parked: info.Parked,
		Dead: info.Dead, Done: info.Done, OldestAge: info.OldestAge.Seconds(), Settings: settingsRecordOf(info.Settings),
	}
}

func (p *program) queuesCommand() *cobra.Command {
	var watch bool
	interval := durationFlag{2 * time.Second}
	cmd := &cobra.Command{
		Use: "queues", Short: "Show the state of each outbox and queue",
		Long: `Show the state of each outbox and queue.

PENDING messages are neither done nor dead. Of these, DUE ones wait for neither
a time nor their next attempt, IN FLIGHT ones are being handled, FAILING ones
have a failed attempt, and PARKED ones wait for an operator. OLDEST is the age
of the oldest pending message, which includes scheduled ones. DONE messages are
those in the history, if one is kept.

Each call reads all pending messages, dead letters and entries of the history.
With many of them do not repeat it more than a few times a minute.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error {
			if interval.Duration < time.Second {
				return usagef("--interval: use at least 1s")
			}
			a, err := s.admin("")
			if err != nil {
				return err
			}
			return s.repeat(watch, interval.Duration, func(ctx context.Context) error { return s.printQueues(ctx, a) })
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "print again and again until the command is interrupted")
	cmd.Flags().Var(&interval, "interval", "time between two looks of --watch")
	return cmd
}

func (s *session) printQueues(ctx context.Context, a *admin.Admin) error {
	queues, err := a.Queues(ctx)
	if err != nil {
		return err
	}
	list := s.list("OUTBOX OR QUEUE", "STATE", "PENDING", "DUE", "IN FLIGHT", "FAILING", "PARKED", "DEAD", "DONE", "OLDEST", "PROCESSES")
	for _, info := range queues {
		record := queueRecordOf(info)
		cells := []string{record.cell(), stateOf(info)}
		for _, n := range []int{info.Pending, info.Due, info.InFlight, info.Failing, info.Parked, info.Dead, info.Done} {
			cells = append(cells, number(n))
		}
		oldest := "-"
		if info.Pending > 0 {
			oldest = span(info.OldestAge)
		}
		if err := list.add(record, append(cells, oldest, number(info.Processes))...); err != nil {
			return err
		}
	}
	return list.end()
}

func stateOf(info admin.QueueInfo) string {
	var states []string
	if !info.PausedSince.IsZero() {
		states = append(states, "paused")
	}
	if info.PausedKeys > 0 {
		states = append(states, count(info.PausedKeys, "paused key"))
	}
	if info.PausedTopics > 0 {
		states = append(states, count(info.PausedTopics, "paused topic"))
	}
	if len(states) == 0 {
		return "running"
	}
	return strings.Join(states, ", ")
}

// clearScreen moves the cursor to the beginning and clears the rest of the terminal.
const clearScreen = "\x1b[H\x1b[2J"

// repeat calls look once, or until the operator stops it, which is how --watch ends.
func (s *session) repeat(again bool, interval time.Duration, look func(ctx context.Context) error) error {
	ctx := s.cmd.Context()
	if !again {
		return look(ctx)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if s.format == formatTable && isTerminal(s.w) {
			fmt.Fprint(s.w, clearScreen)
		}
		err := look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
