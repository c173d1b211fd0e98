package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// checkServer is what forwarders, queues and stores check when they start.
func (s *session) checkServer(ctx context.Context) ([]finding, error) {
	err := s.statements.CheckServer(ctx, s.db)
	if err == nil {
		if err = s.statements.CheckTables(ctx, s.db); dialect.LacksTable(err) {
			err = nil // the next check says so
		}
	}
	if err == nil {
		if err = s.statements.CheckSequences(ctx, s.db); err != nil && !errors.Is(err, dialect.ErrBehind) {
			err = nil // this role may not look at them, or a table is missing
		}
	}
	if s.statements.Kind.ReadOnly(err) {
		return nil, nil // another check says so
	}
	if errors.Is(err, dialect.ErrUnfit) || errors.Is(err, dialect.ErrBehind) {
		return problem(err.Error(), "as the finding says; docs/databases.md explains it"), nil
	}
	return nil, err
}

func (s *session) checkSchema(ctx context.Context) ([]finding, error) {
	found, err := s.versions(ctx)
	if err != nil {
		return nil, err
	}
	if unknown := found.count(migrationUnknown); unknown > 0 {
		text := fmt.Sprintf("the tables have version %d, and this program does not know %s", found.newest(), count(unknown, "migration"))
		return problem(text, "use a newer version of postbox, and of the library in each process"), nil
	}
	if missing := found.count(migrationMissing); missing > 0 {
		return problem(are(missing, "migration")+" missing", "postbox migrate up"), nil
	}
	return nil, nil
}

func (s *session) checkDeployment(ctx context.Context) ([]finding, error) {
	err := s.statements.CheckDeployment(ctx, s.db)
	if !errors.Is(err, postbox.ErrDeployment) {
		return nil, err
	}
	found := finding{
		Status: findingProblem, Text: err.Error(),
		Fix: "set --deployment to the name of the tables; if this is a copy of another database, see docs/security.md first",
	}
	if s.database.Deployment == "" { // then it is only unknown what the processes have
		found.Status = findingNotice
	}
	return []finding{found}, nil
}

func (s *session) checkWritable(ctx context.Context) ([]finding, error) {
	_, err := s.db.ExecContext(ctx, s.statements.TryWrite)
	if s.statements.Kind.ReadOnly(err) {
		return problem("the server takes no writes: "+err.Error(), "connect to the primary server, or end its read-only mode"), nil
	}
	if s.refused(err) {
		return nil, nil // the next check says so
	}
	return nil, err
}

// refused says whether the server refused a statement to the role: it has no other reason to refuse
// one of ours.
func (s *session) refused(err error) bool {
	return dialect.Coded(err) && s.statements.Kind.Classify(err) == dialect.Other
}

// right is one that commands need. The statement fails without it. It changes no row that another
// transaction sees: it is for no row, or what it inserts is rolled back.
type right struct {
	grant, table string
	query        dialect.Query
}

func (s *session) rights() []right {
	const none = -1
	read := func(table string) right {
		return right{"SELECT", table, dialect.Query{Text: s.statements.Fill("SELECT * FROM {" + table + "} WHERE 1 = 0")}}
	}
	remove := func(table string) right {
		return right{"DELETE", table, dialect.Query{Text: s.statements.Fill("DELETE FROM {" + table + "} WHERE 1 = 0")}}
	}
	update := func(table string, columns ...string) right {
		var same []string
		for _, column := range columns {
			same = append(same, column+" = "+column)
		}
		text := s.statements.Fill("UPDATE {" + table + "} SET " + strings.Join(same, ", ") + " WHERE 1 = 0")
		return right{"UPDATE (" + strings.Join(columns, ", ") + ")", table, dialect.Query{Text: text}}
	}
	insert := func(table string, columns ...string) right {
		list := strings.Join(columns, ", ")
		text := s.statements.Fill("INSERT INTO {" + table + "} (" + list + ") SELECT " + list + " FROM {" + table + "} WHERE 1 = 0")
		return right{"INSERT", table, dialect.Query{Text: text}}
	}
	return []right{
		read("spools"), read("members"), read("messages"), read("history"), read("dead_letters"), read("failures"), read("pauses"),
		read("lanes"), read("topic_pauses"), read("audit"), read("unique_keys"), read("receipts"),
		update("spools", "paused_at", "paused_by", "pause_reason", "pause_ends_at"),
		update("spools", "version"),
		update("spools", "settings"),
		{"INSERT", "messages", s.statements.Append(none, []dialect.Row{{MessageID: []byte{0}, Payload: []byte{0}, Metadata: []byte{0}}})[0]},
		insert("pauses", "spool", "key_hash", "ordering_key", "paused_at", "paused_by", "reason"),
		remove("pauses"),
		insert("topic_pauses", "spool", "topic", "paused_at", "paused_by", "reason", "ends_at"),
		remove("topic_pauses"),
		update("messages", "attempts", "starts", "available_at"),
		remove("messages"),
		update("dead_letters", "resolved_at", "resolution"),
		remove("dead_letters"),
		{"INSERT", "dead_letters", s.statements.InsertDeadLetter(dialect.InboxLetter{
			Letter: dialect.Letter{Subject: []byte{0}, MessageID: []byte{0}, Payload: []byte{0}, Metadata: []byte{0}},
		})},
		update("failures", "subject"),
		{"INSERT", "failures", s.statements.InsertFailure(dialect.Failure{Subject: []byte{0}})},
		{"INSERT", "audit", s.statements.RecordAct(dialect.AuditRow{})},
		update("audit", "affected", "note"),
		{"SELECT (claim_key)", "claims", dialect.Query{Text: s.statements.Fill("SELECT claim_key FROM {claims} WHERE 1 = 0")}},
		remove("claims"),
	}
}

func (s *session) checkRights(ctx context.Context) ([]finding, error) {
	return s.missingRights(ctx, s.rights(), "operator")
}

// missingRights tries statements, and says which rights of a role in docs/security.md are missing.
func (s *session) missingRights(ctx context.Context, rights []right, role string) ([]finding, error) {
	var findings []finding
	for _, right := range rights {
		err := s.try(ctx, right.query)
		if s.refused(err) {
			statement := fmt.Sprintf("GRANT %s ON %s TO …; all grants are under the role %s in docs/security.md", right.grant, s.statements.Names.Table(right.table), role)
			findings = append(findings, problem(err.Error(), statement)...)
			continue
		}
		if err != nil && !s.statements.Kind.ReadOnly(err) { // another check says that nothing can be written
			return findings, err
		}
	}
	return findings, nil
}

// try executes a statement in a transaction that is rolled back.
func (s *session) try(ctx context.Context, query dialect.Query) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.statements.Isolation})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	// Not ExecContext: with rows in the answer, go-sql-driver/mysql v1.10.1 waits for ever on
	// MariaDB.
	rows, err := tx.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() { // the answer does not matter, only whether there is one
	}
	return rows.Err()
}

// maxSkew is the difference between two clocks that does no harm.
const maxSkew = time.Second

func (s *session) checkClock(ctx context.Context) ([]finding, error) {
	before := time.Now()
	there, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	took := time.Since(before)
	skew := there.Sub(before.Add(took / 2)) // as if the answer took as long as the question
	if skew.Abs() <= maxSkew+took/2 {
		return nil, nil
	}
	which := "ahead of"
	if skew < 0 {
		which = "behind"
	}
	return []finding{{
		Status: findingNotice,
		Text:   fmt.Sprintf("the database's clock is %s %s the clock of this machine", span(skew.Abs().Round(time.Millisecond)), which),
		Fix:    "synchronise both clocks with NTP; Postbox itself goes by the database's clock alone",
	}}, nil
}
