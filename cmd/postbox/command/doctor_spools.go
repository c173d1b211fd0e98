package command

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// checkMessages lists what keeps messages from being handled, the most urgent first, as the first
// page of the dashboard does, and messages of no outbox or queue.
func (s *session) checkMessages(ctx context.Context) ([]finding, error) {
	findings, err := s.strays(ctx)
	if err != nil {
		return nil, err
	}
	a, err := s.admin("")
	if err != nil {
		return nil, err
	}
	all, err := a.Queues(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range admin.Needs(all) {
		text, status := n.Target.String()+" "+n.Text, findingNotice
		if n.Urgent || n.Trouble == "services" || n.Trouble == "late" {
			status = findingProblem
		}
		if n.Trouble == "outages" {
			text += s.errorOf(ctx, a, n)
		}
		findings = append(findings, finding{Check: n.Trouble, Status: status, Text: text, Fix: fixOf(n)})
	}
	return findings, nil
}

// commandOf is the command that helps. Its last word is a name.
func commandOf(n admin.Need) string {
	last := len(n.Command) - 1
	return "postbox " + strings.Join(n.Command[:last], " ") + " " + shellWord(n.Command[last])
}

func fixOf(n admin.Need) string {
	if n.Advice == "" {
		return commandOf(n)
	}
	return n.Advice + " See: " + commandOf(n)
}

// errorOf is the last error of a message that waits for the end of an outage.
func (s *session) errorOf(ctx context.Context, a *admin.Admin, n admin.Need) string {
	tried, _, err := a.Messages(ctx, admin.Filter{Target: n.Target, Status: admin.Retrying, Limit: 1})
	if err != nil || len(tried) == 0 {
		return ""
	}
	m, err := a.Message(ctx, admin.Filter{Target: n.Target, ID: tried[0].ID})
	if err != nil || len(m.Failures) == 0 {
		return ""
	}
	last := m.Failures[len(m.Failures)-1]
	return fmt.Sprintf(" Message %d failed first at %s: %s", m.ID, moment(last.At), short(strings.TrimPrefix(last.Error, "the message waits, and no attempt is counted: ")))
}

// strays are messages whose outbox or queue does not exist.
func (s *session) strays(ctx context.Context) (findings []finding, err error) {
	err = s.query(ctx, s.statements.Fullness, func(rows *sql.Rows) error {
		var id int64
		var name sql.NullString
		err := rows.Scan(&id, &name, new(bool))
		if err == nil && !name.Valid {
			messages, spools := s.statements.Names.Table("messages"), s.statements.Names.Table("spools")
			findings = append(findings, finding{
				Check: "processes", Status: findingProblem, Text: fmt.Sprintf("messages belong to an outbox or a queue with the id %d, which does not exist", id),
				Fix: fmt.Sprintf("restart the processes that write messages, and then: UPDATE %s SET spool = (SELECT id FROM %s WHERE name = '…') WHERE spool = %d", messages, spools, id),
			})
		}
		return err
	})
	return findings, err
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
