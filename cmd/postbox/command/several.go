package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// answerRecord is what a command answers about one of several databases.
type answerRecord struct {
	Database string          `json:"database"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// onEach returns the function of a command that shows something, on each database that is named.
// Its answer is no if that of one of them is.
func (p *program) onEach(access access, run func(s *session, args []string) error) func(*cobra.Command, []string) error {
	return p.onSeveral(access, worst, run)
}

// onSeveral runs a command on one database after the other. One that does not answer hides no other
// one. The verdict is made of their errors.
func (p *program) onSeveral(access access, verdict func([]error) error, run func(s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		found, err := p.settings.resolveAll(p.options.LookupEnv)
		if err != nil {
			return err
		}
		if len(found) == 1 {
			return p.run(cmd, access, found[0], func(s *session) error { return run(s, args) })
		}
		answers := &list{printer: p.printer(cmd)} // of JSON: a table is written as it comes
		total := &sum{}
		var problems []error
		for n, one := range found {
			name := cmp.Or(one.address.place, fmt.Sprintf("database %d", n+1))
			var answer bytes.Buffer
			if p.output == formatTable {
				fmt.Fprintf(cmd.OutOrStdout(), "%s:\n", name)
			}
			err := p.run(cmd, access, one, func(s *session) error {
				s.sum = total
				if p.output != formatTable {
					s.w = &answer
				}
				return run(s, args)
			})
			if ended := cmd.Context().Err(); ended != nil {
				problems = []error{ended}
				break
			}
			if err != nil && !isNo(err) {
				total.Missing++
			}
			problems = append(problems, err)
			if err := p.answer(cmd.OutOrStdout(), answers, name, answer.Bytes(), err); err != nil {
				return err
			}
		}
		if total.queues > 0 {
			if err := total.print(cmd.OutOrStdout(), answers); err != nil {
				return err
			}
		}
		if p.output != formatTable {
			if err := answers.end(); err != nil {
				return err
			}
		}
		return verdict(problems)
	}
}

// isNo says that a command worked, with the answer no.
func isNo(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.code == codeFound
}

// answer prints what a database answered.
func (p *program) answer(w io.Writer, answers *list, name string, answer []byte, problem error) error {
	text := ""
	if problem != nil {
		text = withoutAddresses(problem.Error())
	}
	switch p.output {
	case formatTable:
		if problem != nil {
			fmt.Fprintln(w, lines(text))
		}
		fmt.Fprintln(w)
		return nil
	case formatJSON:
		if !json.Valid(answer) { // the error has cut it short
			answer = nil
		}
		return answers.add(answerRecord{name, bytes.TrimSpace(answer), text})
	}
	for line := range bytes.Lines(answer) {
		if err := answers.add(answerRecord{name, bytes.TrimSpace(line), ""}); err != nil {
			return err
		}
	}
	if problem != nil {
		return answers.add(answerRecord{name, nil, text})
	}
	return nil
}

// worst returns the error that says most: one of a database before an answer that is no.
func worst(problems []error) (err error) {
	for _, problem := range problems {
		if err == nil || isNo(err) && problem != nil {
			err = problem
		}
	}
	return err
}

// anyOf is worst for a command that looks for something: it is enough if one database has it.
func anyOf(problems []error) error {
	if slices.Contains(problems, nil) {
		problems = slices.DeleteFunc(problems, isNo)
	}
	return worst(problems)
}

// sum is that of the messages in all databases. A nil one adds nothing.
type sum struct {
	queues int

	Pending  int `json:"pending"`
	Due      int `json:"due"`
	InFlight int `json:"in_flight"`
	Failing  int `json:"failing"`
	Parked   int `json:"parked"`
	Dead     int `json:"dead"`
	// Missing is how many databases did not answer.
	Missing int `json:"missing,omitempty"`
}

func (s *sum) add(info admin.QueueInfo) {
	if s == nil {
		return
	}
	s.queues++
	s.Pending = together(s.Pending, info.Pending)
	s.Due = together(s.Due, info.Due)
	s.InFlight += info.InFlight
	s.Failing = together(s.Failing, info.Failing)
	s.Parked = together(s.Parked, info.Parked)
	s.Dead = together(s.Dead, info.Dead)
}

// together adds numbers of messages, of which one above the bound says that there are more.
func together(a, b int) int {
	if max(a, b) > admin.CountedUpTo {
		return admin.CountedUpTo + 1
	}
	return a + b
}

func (s *sum) print(w io.Writer, answers *list) error {
	if answers.format == formatTable {
		parts := []string{
			amount(s.Pending) + " pending", amount(s.Due) + " due", number(s.InFlight) + " in flight",
			amount(s.Failing) + " failing", amount(s.Parked) + " parked", amount(s.Dead) + " dead",
		}
		if s.Missing > 0 {
			parts = append(parts, "without "+count(s.Missing, "database"))
		}
		_, err := fmt.Fprintf(w, "All together: %s\n", strings.Join(parts, ", "))
		return err
	}
	text, err := encode(s)
	if err != nil {
		return err
	}
	return answers.add(answerRecord{"all together", json.RawMessage(text), ""})
}
