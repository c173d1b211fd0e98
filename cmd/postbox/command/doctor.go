package command

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// finding is what a check of doctor says.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Text   string `json:"finding,omitempty"`
	// Fix is the statement or the action that ends the problem.
	Fix string `json:"fix,omitempty"`
}

// What a check says.
const (
	findingOK = "ok"
	// findingProblem: messages are not handled, or Postbox cannot keep its promises.
	findingProblem = "problem"
	// findingNotice: an operator may want it so.
	findingNotice = "notice"
	// findingUnknown: the check could not be made.
	findingUnknown = "unknown"
)

// check is one thing that doctor looks at. It returns nothing if all is well.
type check struct {
	name string
	look func(ctx context.Context) ([]finding, error)
	// needsTables: without the tables the check would only say so again.
	needsTables bool
}

func (p *program) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look for what keeps Postbox from working, and say how to fix it",
		Long: `Look for what keeps Postbox from working, and say how to fix it.

  server      the database, its version and its settings, as forwarders check
              them when they start
  schema      migrations that are missing, or that this program does not know
  deployment  the name that is stored with the tables, against --deployment,
              which has the name that the processes have
  writable    whether the server takes writes
  rights      the rights that the commands of postbox need
  clock       the difference between the clocks of this machine and of the
              database
  lanes       lanes without a holder, although processes are there
  messages    what the dashboard says needs attention, the most urgent first:
    processes   messages are due, and no process handles them
    outages     the broker, or what the handler needs, is away
    services    processes of different services share an outbox or a queue
    calls       publishers and handlers that have not returned for 5 minutes
    keys        keys whose first message has failed
    parked      messages that have used up their attempts
    late        messages due for more than 5 minutes, for no reason above
    paused, topics, pauses  what operators have paused
    letters     dead letters that no operator has resolved

The rights are tried with statements in transactions that are rolled back. Each
finding has the statement or the action that fixes it. A "problem" keeps
messages from being handled. A "notice" may be wanted. A check that could not be
made is "unknown".

The exit code is 0 if there is no problem and nothing is unknown, and 3
otherwise.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(inspecting, func(s *session, _ []string) error { return s.doctor(s.cmd.Context()) }),
	}
}

func (s *session) doctor(ctx context.Context) error {
	list := s.list("CHECK", "STATUS", "FINDING", "FIX")
	bad, migrated := 0, true
	for _, c := range s.checks() {
		if c.needsTables && !migrated {
			continue
		}
		findings, err := c.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			findings = append(findings, s.unknown(c.name, err))
		}
		if len(findings) == 0 {
			findings = []finding{{Status: findingOK}}
		}
		for _, f := range findings {
			f.Check = cmp.Or(f.Check, c.name)
			if f.Status == findingProblem || f.Status == findingUnknown {
				bad++
			}
			if f.Status == findingProblem && c.name == schemaCheck {
				migrated = false
			}
			if err := list.add(f, f.Check, f.Status, cell(f.Text), cell(f.Fix)); err != nil {
				return err
			}
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if bad > 0 {
		return foundf("%s found", count(bad, "problem"))
	}
	return nil
}

const schemaCheck = "schema"

// checks are the checks in the order in which they are made: one that fails explains the ones after
// it.
func (s *session) checks() []check {
	return []check{
		{"server", s.checkServer, false},
		{schemaCheck, s.checkSchema, false},
		{"deployment", s.checkDeployment, true},
		{"writable", s.checkWritable, true},
		{"rights", s.checkRights, true},
		{"clock", s.checkClock, false},
		{"lanes", s.checkLanes, true},
		{"messages", s.checkMessages, true},
	}
}

// unknown is the finding of a check that could not be made. The server refuses a role a table that
// it may not read.
func (s *session) unknown(name string, err error) finding {
	text := s.address.hide(err.Error())
	fix := "look at the error"
	if dialect.Coded(err) && s.statements.Kind.Classify(err) == dialect.Other {
		fix = fmt.Sprintf("give the role of this command the right to read tables %s: see the role operator in docs/security.md", s.statements.Names.Table("*"))
	}
	return finding{Check: name, Status: findingUnknown, Text: text, Fix: fix}
}

func problem(text, fix string) []finding {
	return []finding{{Status: findingProblem, Text: text, Fix: fix}}
}
