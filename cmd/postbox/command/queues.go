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
	admin.Target
	Processes    int            `json:"processes"`
	PausedSince  time.Time      `json:"paused_since,omitzero"`
	PausedBy     string         `json:"paused_by,omitempty"`
	PauseReason  string         `json:"pause_reason,omitempty"`
	PausedUntil  time.Time      `json:"paused_until,omitzero"`
	PausedKeys   int            `json:"paused_keys"`
	PausedTopics int            `json:"paused_topics"`
	Outages      []admin.Outage `json:"outages,omitempty"`
	Pending      int            `json:"pending"`
	Due          int            `json:"due"`
	InFlight     int            `json:"in_flight"`
	LongCall     *admin.Call    `json:"long_call,omitempty"`
	Failing      int            `json:"failing"`
	Parked       int            `json:"parked"`
	Dead         int            `json:"dead"`
	Done         int            `json:"done"`
	DueAge       float64        `json:"due_age_seconds"`
	OldestAge    float64        `json:"oldest_age_seconds"`
	Limits       []limitRecord  `json:"limits,omitempty"`
	LimitsDiffer bool           `json:"limits_differ,omitempty"`
	Settings     settingsRecord `json:"settings,omitzero"`
}

func queueRecordOf(info admin.QueueInfo) queueRecord {
	record := queueRecord{
		Target: info.Target, Processes: info.Processes,
		PausedSince: utc(info.Pause.Since), PausedBy: info.Pause.By, PauseReason: info.Pause.Reason, PausedUntil: utc(info.Pause.Until), PausedKeys: info.PausedKeys, PausedTopics: info.PausedTopics,
		Pending: info.Pending, Due: info.Due, InFlight: info.InFlight, LongCall: utcCall(info.LongCall), Failing: info.Failing, Parked: info.Parked,
		Dead: info.Dead, Done: info.Done,
		DueAge: info.DueAge.Seconds(), OldestAge: info.OldestAge.Seconds(), Settings: settingsRecordOf(info.Settings), Limits: limitRecordsOf(info), LimitsDiffer: info.LimitsDiffer,
	}
	for _, outage := range info.Outages {
		record.Outages = append(record.Outages, admin.Outage{Topic: outage.Topic, Since: utc(outage.Since), Next: utc(outage.Next)})
	}
	return record
}

func (p *program) queuesCommand() *cobra.Command {
	var watch bool
	interval := durationFlag{2 * time.Second}
	cmd := &cobra.Command{
		Use: "queues", Short: "Show the state of each outbox and queue",
		Long: `Show the state of each outbox and queue.

PENDING messages are neither done nor dead. Of these, DUE ones wait for neither
a time nor their next attempt, IN FLIGHT ones were being handled at the last
heartbeat of each process, a few seconds ago, FAILING ones have a failed
attempt, and PARKED ones wait for an operator. LONG CALL is for how long the
call of a publisher or a handler has run that has not returned for longest,
once that is more than 10 seconds: it may hang. "postbox lanes --members" has
its process and its message. OLDEST DUE is for how long the oldest due message
has been due. DONE messages are those in the history, if one is kept. LIMITS
bound how many messages start in a second, and how many handlers run at a time,
in all processes together: "config" is what processes are configured with, and
"set" what an operator has stored, as with "postbox set".

Numbers up to 10,000 are exact. Where there are more, the number is "10,000+",
and 10001 with -o json. Of dead letters, resolved or not, the latest 10,000 are
looked at.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error {
			if interval.Duration < time.Second {
				return usagef("--interval: use at least 1s")
			}
			if watch && s.sum != nil {
				return usagef("--watch is for one database")
			}
			return s.repeat(watch, interval.Duration, s.printQueues)
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "print again and again until the command is interrupted")
	cmd.Flags().Var(&interval, "interval", "time between two looks of --watch")
	return cmd
}

func (s *session) printQueues(ctx context.Context) error {
	queues, err := s.queues(ctx)
	if err != nil {
		return err
	}
	list := s.list("OUTBOX OR QUEUE", "STATE", "PENDING", "DUE", "IN FLIGHT", "LONG CALL", "FAILING", "PARKED", "DEAD", "DONE", "OLDEST DUE", "PROCESSES", "LIMITS")
	for _, info := range queues {
		s.sum.add(info)
		record := queueRecordOf(info)
		cells := []string{targetCell(info.Target), stateOf(info)}
		cells = append(cells, amount(info.Pending), amount(info.Due), number(info.InFlight), callCell(info.LongCall))
		cells = append(cells, amount(info.Failing), amount(info.Parked), amount(info.Dead), amount(info.Done))
		oldest := "-"
		if info.Due > 0 {
			oldest = span(info.DueAge)
		}
		if err := list.add(record, append(cells, oldest, number(info.Processes), limitsCell(info))...); err != nil {
			return err
		}
	}
	return list.end()
}

// amount is a number of messages, of which no more than some are counted.
func amount(n int) string {
	if n > admin.CountedUpTo {
		return grouped(admin.CountedUpTo) + "+"
	}
	return grouped(n)
}

// amountOf is a number of messages with its noun.
func amountOf(n int, noun string) string {
	if n > admin.CountedUpTo {
		return amount(n) + " " + noun + "s"
	}
	return count(n, noun)
}

// grouped writes a number with a comma after each three digits.
func grouped(n int) string {
	text := number(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// stateOf lists what keeps messages from being handed out.
func stateOf(info admin.QueueInfo) string {
	var states []string
	if !info.Pause.Since.IsZero() {
		state := "paused"
		if !info.Pause.Until.IsZero() {
			state += " until " + moment(info.Pause.Until)
		}
		states = append(states, state)
	}
	if info.PausedKeys > 0 {
		states = append(states, count(info.PausedKeys, "paused key"))
	}
	if info.PausedTopics > 0 {
		states = append(states, count(info.PausedTopics, "paused topic"))
	}
	if n := len(info.Outages); n > 0 {
		states = append(states, count(n, "outage"))
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
