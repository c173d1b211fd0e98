package command

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// checkProcesses looks for messages that no process will handle. It asks as the cleanup of a
// running process does, which logs the same.
func (s *session) checkProcesses(ctx context.Context) ([]finding, error) {
	var findings []finding
	for after := int64(0); ; {
		var id sql.NullInt64
		var name sql.NullString
		var unattended bool
		next := s.statements.NextWaiting(dialect.NextWaitingParams{After: after})
		if err := s.db.QueryRowContext(ctx, next.Text, next.Args...).Scan(&id, &name, &unattended); err != nil || !id.Valid {
			return findings, err
		}
		after = id.Int64
		switch target := targetNamed(name.String); {
		case !name.Valid:
			messages, spools := s.statements.Names.Table("messages"), s.statements.Names.Table("spools")
			findings = append(findings, problem(
				fmt.Sprintf("messages belong to an outbox or a queue with the id %d, which does not exist", id.Int64),
				fmt.Sprintf("restart the processes that write messages, and then: UPDATE %s SET spool = (SELECT id FROM %s WHERE name = '…') WHERE spool = %d",
					messages, spools, id.Int64))...)
		case unattended && target.Kind == kindQueue:
			findings = append(findings, problem(
				fmt.Sprintf("messages are due in %s, and no process has subscribed to it", target),
				"run a queue.Subscriber or a queue.Batch of this queue, or correct the name where messages are deferred")...)
		case unattended:
			findings = append(findings, problem(
				fmt.Sprintf("messages are due in %s, and no forwarder of it runs", target),
				"run a forwarder with this name in forwarder.Config.Outbox, or correct PublisherConfig.Outbox")...)
		}
	}
}

// laneWait is the time between two looks at lanes: one changes hands within seconds when a process
// starts or ends.
const laneWait = 5 * time.Second

// checkLanes looks a second time if it finds something.
func (s *session) checkLanes(ctx context.Context) ([]finding, error) {
	before, err := s.laneTroubles(ctx)
	if err != nil || len(before) == 0 {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(laneWait):
	}
	now, err := s.laneTroubles(ctx)
	if err != nil {
		return nil, err
	}
	var findings []finding
	for _, trouble := range now {
		same := func(of laneTrouble) bool { return of.target == trouble.target }
		if slices.ContainsFunc(before, same) {
			findings = append(findings, trouble.finding()...)
		}
	}
	return findings, nil
}

// laneTrouble is about the lanes of a target.
type laneTrouble struct {
	target admin.Target
	idle   int // lanes that no process holds, although one lives
}

func (t laneTrouble) finding() []finding {
	of := t.target
	return problem(
		fmt.Sprintf("%s without a holder in %s, although processes of it are alive", count(t.idle, "lane"), of),
		"look at the log of these processes for what keeps them, and restart the one that hangs")
}

// laneTroubles returns what is wrong with lanes now.
func (s *session) laneTroubles(ctx context.Context) (all []laneTrouble, err error) {
	a, err := s.admin("")
	if err != nil {
		return nil, err
	}
	targets, err := a.Targets(ctx)
	if err != nil {
		return nil, err
	}
	for _, target := range targets {
		lanes, members, err := a.Lanes(ctx, target)
		if err != nil {
			return nil, err
		}
		free := slices.DeleteFunc(lanes, func(l admin.Lane) bool { return l.Held })
		if len(members) > 0 && len(free) > 0 {
			all = append(all, laneTrouble{target, len(free)})
		}
	}
	return all, nil
}

// states returns the states of outboxes and queues, and those of inboxes.
func (s *session) states(ctx context.Context) (queues, inboxes []admin.QueueInfo, err error) {
	a, err := s.admin("")
	if err != nil {
		return nil, nil, err
	}
	all, err := a.Queues(ctx)
	for _, info := range all {
		if info.Target.Kind == kindInbox {
			inboxes = append(inboxes, info)
		} else {
			queues = append(queues, info)
		}
	}
	return queues, inboxes, err
}

func (s *session) queues(ctx context.Context) ([]admin.QueueInfo, error) {
	queues, _, err := s.states(ctx)
	return queues, err
}

// checkServices lists outboxes and queues whose processes do different things with the messages.
func (s *session) checkServices(ctx context.Context) ([]finding, error) {
	queues, err := s.queues(ctx)
	var findings []finding
	for _, info := range queues {
		if len(info.Work) > 1 {
			findings = append(findings, problem(
				fmt.Sprintf("%s is shared by processes that do different things with its messages: %s", info.Target, strings.Join(info.Work, "; ")),
				"if that is no deployment, give each service a name of its own for it, or a prefix")...)
		}
	}
	return findings, err
}

// checkOutages lists topics whose circuit is open in a process.
func (s *session) checkOutages(ctx context.Context) ([]finding, error) {
	queues, err := s.queues(ctx)
	var findings []finding
	for _, info := range queues {
		for _, outage := range info.Outages {
			what, fix := fmt.Sprintf("the broker is away for topic %q of %s", outage.Topic, info.Target), "bring the broker back, or correct the topic or the rights on it"
			if info.Target.Kind == kindQueue {
				what, fix = fmt.Sprintf("what the handler of %s needs is away", info.Target), "bring that back"
			}
			findings = append(findings, problem(
				fmt.Sprintf("%s since %s: its messages wait, and no attempts are counted", what, moment(outage.Since)),
				fix+"; the log of the process has the error, and messages go on by themselves")...)
		}
	}
	return findings, err
}

// checkOperators lists outboxes, queues, keys and topics that an operator has paused, and messages
// that wait for an operator.
func (s *session) checkOperators(ctx context.Context) ([]finding, error) {
	queues, err := s.queues(ctx)
	var findings []finding
	note := func(text, fix string) {
		findings = append(findings, finding{Status: findingNotice, Text: text, Fix: fix})
	}
	for _, info := range queues {
		target := info.Target
		flag := "--" + target.Kind + " " + shellWord(target.Name)
		if !info.PausedSince.IsZero() {
			note(fmt.Sprintf("%s is paused since %s, with %s pending", target, moment(info.PausedSince), amountOf(info.Pending, "message")), "postbox resume "+flag)
		}
		if info.PausedKeys > 0 {
			note(fmt.Sprintf("%s in %s", count(info.PausedKeys, "paused key"), target), "postbox keys list "+flag+", then postbox keys resume")
		}
		if info.PausedTopics > 0 {
			note(fmt.Sprintf("%s in %s", count(info.PausedTopics, "paused topic"), target), "postbox topics list "+flag+", then postbox topics resume")
		}
		if info.Parked > 0 {
			note(fmt.Sprintf("%s in %s: the keys of parked messages wait for an operator", amountOf(info.Parked, "parked message"), target),
				"postbox messages list --status parked "+flag+", then postbox messages run-now or bury")
		}
	}
	return findings, err
}

// checkKeys lists outboxes and queues with keys whose messages wait behind one that has failed.
func (s *session) checkKeys(ctx context.Context) ([]finding, error) {
	queues, err := s.queues(ctx)
	var findings []finding
	for _, info := range queues {
		if info.StuckKeys == 0 {
			continue
		}
		target := info.Target
		findings = append(findings, finding{
			Status: findingNotice, Text: fmt.Sprintf("%s in %s, for up to %s: later messages of a key wait behind one that has failed", count(info.StuckKeys, "stuck key"), target, span(info.StuckAge)),
			Fix: "postbox keys stuck --" + target.Kind + " " + shellWord(target.Name) + " shows these messages and their errors; then postbox messages run-now or bury",
		})
	}
	return findings, err
}

// checkLetters lists dead letters that no operator has resolved.
func (s *session) checkLetters(ctx context.Context) ([]finding, error) {
	queues, inboxes, err := s.states(ctx)
	var findings []finding
	note := func(n int, of, flag string) {
		if n > 0 {
			findings = append(findings, finding{
				Status: findingNotice, Text: fmt.Sprintf("%s of %s", amountOf(n, "dead letter"), of),
				Fix: "postbox dead groups " + flag + " sorts them by what went wrong; then postbox dead requeue, resolve or delete --like ID",
			})
		}
	}
	for _, info := range queues {
		target := info.Target
		note(info.Dead, target.String(), "--"+target.Kind+" "+shellWord(target.Name))
	}
	for _, inbox := range inboxes {
		name := inbox.Target.Name
		note(inbox.Dead, "consumer "+nameCell(name), "--consumer "+shellWord(name))
	}
	return findings, err
}
