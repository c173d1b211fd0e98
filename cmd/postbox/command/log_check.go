package command

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// logFinding is a line of log check.
type logFinding struct {
	finding

	Slot *slotRecord `json:"slot,omitempty"` // with the line of the slot
}

// slotRecord is the state of a slot.
type slotRecord struct {
	Name       string `json:"name"`
	Exists     bool   `json:"exists"`
	Incomplete bool   `json:"incomplete,omitempty"`
	Active     bool   `json:"active"`
	PID        int    `json:"pid,omitempty"`
	Role       string `json:"role,omitempty"`
	Address    string `json:"address,omitempty"`
	WALStatus  string `json:"wal_status,omitempty"`
	Invalid    string `json:"invalid,omitempty"`
	Retained   int64  `json:"retained_bytes"`
	Unread     int64  `json:"unread_bytes"`
	Failover   bool   `json:"failover"`
	Synced     bool   `json:"synced"`
}

func slotRecordOf(s pgtail.Slot) *slotRecord {
	return &slotRecord{
		Name: s.Name, Exists: s.Exists, Incomplete: s.Incomplete, Active: s.Active, PID: s.PID, Role: s.Role, Address: s.Address, WALStatus: s.WALStatus, Invalid: s.Invalid,
		Retained: s.Retained, Unread: s.Unread, Failover: s.Failover, Synced: s.Synced,
	}
}

func (p *program) logCheckCommand() *cobra.Command {
	var flags logFlags
	cmd := &cobra.Command{
		Use: "check", Short: "Show the slot and its reader, and say what is wrong",
		Long: `Show how it stands with the log, and say what is wrong and how to mend it.

  server       the version and the settings of the server
  role         whether the role of --log-dsn may read the log, and whether
               those of forwarders may store messages that are in it alone
  publication  whether it is there, and sends what forwarders need
  slot         its state, the log that the server keeps for it, and how much of
               that was not confirmed
  reader       the process that reads
  failover     whether standbys keep a permanent slot

Each line has the statement or the action that mends what it has found. The
states are those of "postbox doctor". The role of --dsn needs no right but those
of an operator. On a standby, --without-rows says whether a failover to it would
keep the slot.

The exit code is 0 if there is no problem, and 3 otherwise.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onLog(func(s *session, ctx context.Context) error {
			status, err := s.inspect(ctx, flags)
			if err != nil {
				return err
			}
			if err := s.listLog(status, flags); err != nil {
				return err
			}
			if n := logProblems(status); n > 0 {
				return foundf("%s found", count(n, "problem"))
			}
			return nil
		}),
	}
	flags.addTo(cmd)
	return cmd
}

// logProblems counts the problems, without those about some things.
func logProblems(status pgtail.Status, without ...string) (n int) {
	for _, f := range status.Findings {
		if f.Problem && !slices.Contains(without, f.About) {
			n++
		}
	}
	return n
}

// logSubjects are the lines of the list, in order.
var logSubjects = []string{
	pgtail.AboutServer, pgtail.AboutRole, pgtail.AboutPublication, pgtail.AboutSlot, pgtail.AboutReader, pgtail.AboutFailover,
}

// listLog prints the state.
func (s *session) listLog(status pgtail.Status, flags logFlags) error {
	list := s.list("CHECK", "STATUS", "FINDING", "FIX")
	for _, about := range logSubjects {
		found := logFindings(status, about)
		if len(found) == 0 {
			found = []finding{s.logFine(status, about, flags)}
		}
		for _, f := range found {
			line := logFinding{finding: f}
			if about == pgtail.AboutSlot {
				line.Slot = slotRecordOf(status.Slot)
			}
			if err := list.add(line, f.Check, f.Status, cell(f.Text), cell(f.Fix)); err != nil {
				return err
			}
		}
	}
	return list.end()
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
func (s *session) logFine(status pgtail.Status, about string, flags logFlags) finding {
	slot, text := status.Slot, ""
	switch about {
	case pgtail.AboutServer:
		text = fmt.Sprintf("PostgreSQL %d", status.Version)
		if status.Standby {
			text += ", a standby"
		}
	case pgtail.AboutRole:
		if status.Standby {
			text = "not needed on a standby"
		} else if s.logDSN == "" {
			return finding{about, findingNotice, "not looked at", "set --log-dsn to the address that the forwarders have in the configuration of pgtail"}
		}
	case pgtail.AboutPublication:
		if !status.Published && !status.Standby { // a loss that follows from that is a finding about the slot
			return finding{about, findingNotice, "there is no publication " + status.Publication, "begin with the line of the slot"}
		}
		text = status.Publication
	case pgtail.AboutSlot:
		text = slotText(slot)
	case pgtail.AboutReader:
		if text = readerText(slot); text == "" && !status.Standby {
			text = "none"
		}
	case pgtail.AboutFailover:
		text = failoverText(slot, flags)
	}
	return finding{Check: about, Status: findingOK, Text: text}
}

func slotText(slot pgtail.Slot) string {
	if !slot.Exists {
		return slot.Name + ": the process that reads makes it"
	}
	return fmt.Sprintf("%s: %s, %s kept, %s not confirmed", slot.Name, slot.WALStatus, byteText(slot.Retained), byteText(slot.Unread))
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

func failoverText(slot pgtail.Slot, flags logFlags) string {
	switch {
	case !flags.withoutRows:
		return "no slot needs to be kept: polling finds the messages"
	case slot.Synced:
		return "this standby keeps the slot"
	case slot.Failover:
		return "standbys with sync_replication_slots keep the slot"
	default:
		return "the slot is not kept, and no standby has a slot here"
	}
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
