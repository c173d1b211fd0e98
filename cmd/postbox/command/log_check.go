package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// logFinding is a line of log check.
type logFinding struct {
	finding

	Slot *pgtail.Slot `json:"slot,omitempty"` // with the line of the slot
}

func (p *program) logCheckCommand() *cobra.Command {
	var publication string
	cmd := &cobra.Command{
		Use: "check", Short: "Show the slot and its reader, and say what is wrong",
		Long: `Show how it stands with the log, and say what is wrong and how to mend it.

  server       the version and the settings of the server
  role         whether the role of --log-dsn may read the log
  publication  whether it is there, and sends what forwarders need
  slot         the log that the server keeps for it
  reader       the process that reads

Each line has the statement or the action that mends what it has found. The
states are those of "postbox doctor". The role of --dsn needs no right but those
of an operator.

The exit code is 0 if there is no problem, and 3 otherwise.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onLog(func(s *session, ctx context.Context) error {
			status, err := pgtail.Inspect(ctx, s.database, pgtail.Config{DSN: s.logDSN, Publication: publication})
			if err != nil {
				return err
			}
			problems, err := s.listLog(status)
			if err == nil && problems > 0 {
				err = foundf("%s found", count(problems, "problem"))
			}
			return err
		}),
	}
	addPublicationTo(cmd, &publication)
	return cmd
}

// logSubjects are the lines of the list, in order.
var logSubjects = []string{
	tail.AboutServer, tail.AboutRole, tail.AboutPublication, tail.AboutSlot, tail.AboutReader,
}

// listLog prints the state, and returns the number of problems.
func (s *session) listLog(status pgtail.Status) (problems int, err error) {
	list := s.list("CHECK", "STATUS", "FINDING", "FIX")
	for _, about := range logSubjects {
		found := logFindings(status, about)
		if len(found) == 0 {
			found = []finding{s.logFine(status, about)}
		}
		for _, f := range found {
			line := logFinding{finding: f}
			if about == tail.AboutSlot {
				line.Slot = &status.Slot
			}
			if f.Status == findingProblem {
				problems++
			}
			if err := list.add(line, f.Check, f.Status, cell(f.Text), cell(f.Fix)); err != nil {
				return problems, err
			}
		}
	}
	return problems, list.end()
}

// logFindings returns what was found about one thing.
func logFindings(status pgtail.Status, about string) (found []finding) {
	for _, f := range status.Findings {
		if f.About != about {
			continue
		}
		state := findingNotice
		if f.Problem {
			state = findingProblem
		}
		found = append(found, finding{Check: about, Status: state, Text: f.What, Fix: f.Fix})
	}
	return found
}

// logFine is the line about a thing with which nothing is wrong.
func (s *session) logFine(status pgtail.Status, about string) finding {
	slot, text := status.Slot, ""
	switch about {
	case tail.AboutServer:
		text = fmt.Sprintf("PostgreSQL %d", status.Version)
		if status.Standby {
			text += ", a standby"
		}
	case tail.AboutRole:
		if status.Standby {
			text = "not needed on a standby"
		} else if s.logDSN == "" {
			return finding{about, findingNotice, "not looked at", "set --log-dsn to the address that the forwarders have in the configuration of pgtail"}
		}
	case tail.AboutPublication:
		text = status.Publication
	case tail.AboutSlot:
		text = slotText(slot)
	case tail.AboutReader:
		if text = readerText(slot); text == "" && !status.Standby {
			text = "none"
		}
	}
	return finding{Check: about, Status: findingOK, Text: text}
}

func slotText(slot pgtail.Slot) string {
	if !slot.Exists {
		return slot.Name + ": the process that reads makes it"
	}
	return fmt.Sprintf("%s: %s kept", slot.Name, byteText(slot.Retained))
}

func readerText(slot pgtail.Slot) string {
	if !slot.Active || slot.Incomplete {
		return ""
	}
	text := fmt.Sprintf("process %d", slot.PID)
	if slot.Role != "" {
		text += " of role " + slot.Role
	}
	if slot.Address != "" {
		text += " at " + slot.Address
	}
	return text
}

// byteText is a number of bytes for people.
func byteText(n int64) string {
	const kibi = 1 << 10
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= kibi && unit < len(units)-1 {
		value, unit = value/kibi, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
