package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// Status is how it stands with the log for one set of tables: what the server has, who reads, and
// what is wrong.
type Status struct {
	// Version is the major version of PostgreSQL, such as 17.
	Version int
	// Standby is true if the database is a standby, whose log no process reads.
	Standby bool
	// Publication is the name of the publication.
	Publication string
	// Slot is the slot through which the log is read.
	Slot Slot
	// Findings are what is wrong, and what may be. There are none if all is well.
	Findings []Finding
}

// Slot is a replication slot, as the server shows it.
type Slot struct {
	// Name is the name that the slot has, or would have: it belongs to the tables.
	Name string `json:"name"`
	// Exists is false if there is none. The other fields are then empty. A slot exists while a
	// process reads.
	Exists bool `json:"exists"`
	// Incomplete is true while the server makes the slot, for which it waits for the end of all
	// open transactions. It keeps nothing for the slot until then.
	Incomplete bool `json:"incomplete,omitempty"`
	// Active is true while a process reads from the slot, or makes it. PID is its process on the
	// server.
	Active bool `json:"active"`
	PID    int  `json:"pid,omitempty"`
	// Role and Address are those of the process that reads. Both are empty if the role of this
	// session may not see them, and Address for a local socket.
	Role    string `json:"role,omitempty"`
	Address string `json:"address,omitempty"`
	// Retained is how many bytes of log the server keeps for the slot.
	Retained int64 `json:"retained_bytes"`

	temporary bool
}

// Finding is something that an operator should know about the log.
type Finding struct {
	// About is the subject: server, role, publication, slot or reader.
	About string
	// Problem is true if forwarders cannot read the log. Otherwise an operator may want it so.
	Problem bool
	// What is wrong, and Fix is the statement, the setting or the action that mends it.
	What, Fix string
}

// problem returns the finding for an error. The server may be unable to say more than that.
func problem(about string, err error) Finding {
	f := Finding{About: about, Problem: true, What: err.Error(), Fix: "look at the error"}
	if wrong := (*setupError)(nil); errors.As(err, &wrong) && wrong.fix != "" {
		f.What, f.Fix = (&setupError{what: wrong.what, err: wrong.err}).Error(), wrong.fix
	}
	return f
}

// Inspect returns how it stands with the log. An empty DSN leaves out whether its role may read the
// log; otherwise Inspect connects with it. The role of db needs no right on any table. It changes
// nothing, and takes a few queries.
func Inspect(ctx context.Context, db postbox.Database, config Config) (Status, error) {
	config.setDefaults()
	address, statements, err := config.inspected(db)
	if err != nil {
		return Status{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	server, slot, err := readState(ctx, db.DB, statements)
	if err != nil {
		return Status{}, fmt.Errorf("pgtail: %w", err)
	}
	findings := server.lacks(slot)
	if _, err := publishes(ctx, db.DB, statements, config.Publication); err != nil {
		findings = append(findings, problem(tail.AboutPublication, err))
	}
	switch {
	case slot.Exists && !slot.temporary:
		findings = append(findings, problem(tail.AboutSlot, madeByHand(slot.Name)))
	case slot.Incomplete:
		findings = append(findings, Finding{
			About: tail.AboutReader, What: fmt.Sprintf("no process reads the log yet: to make the slot %s, process %d of the server waits for the end of all open transactions", slot.Name, slot.PID),
			Fix: "wait for that; forwarders poll until then",
		})
	case !slot.Active && !server.standby:
		findings = append(findings, Finding{
			About: tail.AboutReader, What: "no process reads the log", Fix: "give a forwarder Tail, from pgtail.New; without one, forwarders poll (if there is one, its log, or the error of its Run, says why it does not read)",
		})
	}
	findings = append(findings, canRead(ctx, db.DB, statements, address, server)...)
	return Status{
		Version: server.version, Standby: server.standby, Publication: config.Publication, Slot: slot, Findings: findings,
	}, nil
}

// inspected checks what a function of inspection is given. The address is nil if there is no DSN.
func (c Config) inspected(db postbox.Database) (address *pgconn.Config, statements *dialect.Statements, err error) {
	if c.DSN != "" {
		if address, err = c.validate(); err != nil {
			return nil, nil, fmt.Errorf("pgtail: %w", err)
		}
	}
	_, statements, err = setting(db, c.Publication)
	return address, statements, err
}

// readState reads what the server has.
func readState(ctx context.Context, db *sql.DB, statements *dialect.Statements) (server serverState, slot Slot, err error) {
	if server, err = readServer(ctx, db, statements); err != nil {
		return server, slot, err
	}
	here, err := identify(ctx, db, statements)
	if err != nil {
		if dialect.LacksTable(err) {
			err = &setupError{"a table is missing", runMigrate, err}
		}
		return server, slot, err
	}
	slot, err = readSlot(ctx, db, statements, here.slot)
	return server, slot, err
}

// readSlot looks at a slot, which need not exist.
func readSlot(ctx context.Context, db *sql.DB, statements *dialect.Statements, name string) (Slot, error) {
	slot := Slot{Name: name, Exists: true}
	err := db.QueryRowContext(ctx, statements.Fill(selectSlot), name).Scan(
		&slot.temporary, &slot.Incomplete, &slot.Active, &slot.PID, &slot.Role, &slot.Address, &slot.Retained)
	if errors.Is(err, sql.ErrNoRows) {
		return Slot{Name: name}, nil
	}
	if err != nil {
		return slot, fmt.Errorf("look at the slot %s: %w", name, err)
	}
	return slot, nil
}

// canRead connects as a process that reads does. It returns what keeps it from reading.
func canRead(ctx context.Context, db *sql.DB, statements *dialect.Statements, address *pgconn.Config, server serverState) []Finding {
	if address == nil || server.standby { // a standby does not send its log to us
		return nil
	}
	s, err := connect(ctx, address)
	if err == nil {
		defer s.close(ctx)
		if err = s.identify(ctx, db, statements); err == nil {
			err = s.leadsTo(ctx, db, statements)
		}
	}
	if err == nil {
		return nil
	}
	return []Finding{problem(tail.AboutRole, err)}
}
