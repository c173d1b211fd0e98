package prove

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

const (
	// namePrefix begins the names of all that runs make.
	namePrefix = "postbox_prove_"
	// ownPrefix begins the names of the tables that are not those of Postbox.
	ownPrefix = "prove_"
	// beat is the pause between two signs of life of a run. A run that has given none for so long
	// is dead.
	beat = 2 * time.Second
	dead = time.Minute
)

var ofRun = regexp.MustCompile(`^` + namePrefix + `[0-9a-f]{8}`)

// place is where the tables of a run are: a schema of PostgreSQL, tables with a prefix, or a folder
// with a file of SQLite.
type place struct {
	dialect postbox.Dialect
	dsn     string
	db      *sql.DB
	clock   string // a statement

	name   string // of the run
	schema string // empty if the tables are told by their prefix
	prefix string // empty in a schema
	folder string // of SQLite, and else empty

	made bool
}

// open connects to the server, and chooses where the run works.
func open(ctx context.Context, o Options) (*place, error) {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // it never fails
	p := &place{dialect: o.Dialect, dsn: o.DSN, name: namePrefix + hex.EncodeToString(random)}
	statements, err := dialect.For(dialect.Kind(o.Dialect), "", "", "")
	if err != nil {
		return nil, err
	}
	p.clock = statements.Clock
	if p.dialect == postbox.SQLite {
		if o.File == "" {
			return nil, refusef("a database in memory belongs to one process: name a file with --dsn, and the run works in a folder beside it")
		}
		p.folder = filepath.Join(filepath.Dir(o.File), p.name)
		p.dsn = o.Address(filepath.Join(p.folder, "prove.db"))
		return p, nil
	}
	if p.db, err = OpenPooled(o.Open, p.dsn); err != nil { // the address may lead through a pooler, which is not known yet
		return nil, fmt.Errorf("open the database: %w", err)
	}
	p.db.SetMaxOpenConns(parentPool)
	if err := statements.CheckDriver(p.db); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if err := p.db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the database: %w", dialect.HideAddress(err)), p.close())
	}
	if p.prefix = p.name + "_"; p.dialect == postbox.PostgreSQL {
		err = p.choose(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// choose takes a schema if the role may make one, and else tables in the schema of the connection.
func (p *place) choose(ctx context.Context) error {
	var schemas, tables bool
	var role string
	err := p.db.QueryRowContext(ctx, `SELECT has_database_privilege(current_database(), 'CREATE'),
		COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false), current_user`).Scan(&schemas, &tables, &role)
	switch {
	case err != nil:
		return err
	case schemas:
		p.schema, p.prefix = p.name, ""
	case !tables:
		return refusef("the role %s may create neither a schema nor tables: GRANT CREATE ON DATABASE … TO %s, or ON SCHEMA … TO %s", role, role, role)
	}
	return nil
}

// String says where the run works.
func (p *place) String() string {
	switch {
	case p.folder != "":
		return "the folder " + p.folder
	case p.schema != "":
		return "the schema " + p.schema
	default:
		return "tables " + p.prefix + "*"
	}
}

func (p *place) close() error {
	if p.db == nil {
		return nil
	}
	return p.db.Close()
}

// table is the name of a table of the run that is not one of Postbox.
func (p *place) table(name string) string { return p.of(p.schema, p.prefix, name) }

func (p *place) of(schema, prefix, name string) string {
	if schema != "" {
		schema += "."
	}
	return schema + prefix + ownPrefix + name
}

func (p *place) database() postbox.Database {
	return postbox.Database{DB: p.db, Dialect: p.dialect, Schema: p.schema, Prefix: p.prefix, DisablePreparedStatements: true}
}

// make makes the tables.
func (p *place) make(ctx context.Context) error {
	p.made = true // some of it, whatever becomes of it
	id := "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	switch p.dialect {
	case postbox.MySQL:
		id = "BIGINT AUTO_INCREMENT PRIMARY KEY"
	case postbox.SQLite:
		id = "INTEGER PRIMARY KEY AUTOINCREMENT"
	case postbox.PostgreSQL:
	}
	var err error
	if p.dialect == postbox.MySQL { // which cannot do it in a transaction
		err = p.makeSign(ctx, p.db)
	} else { // so that no schema is without a sign of life
		err = postbox.InTx(ctx, p.db, func(ctx context.Context, tx *sql.Tx) error { return p.makeSign(ctx, tx) })
	}
	if err != nil {
		return err
	}
	for _, statement := range []string{
		"CREATE TABLE " + p.table("keys") + " (k VARCHAR(64) NOT NULL PRIMARY KEY, seq BIGINT NOT NULL)",
		"CREATE TABLE " + p.table("intents") + " (message VARCHAR(64) NOT NULL PRIMARY KEY, k VARCHAR(64) NOT NULL, seq BIGINT NOT NULL)",
		"CREATE TABLE " + p.table("effects") + " (id " + id + ", consumer VARCHAR(16) NOT NULL, message VARCHAR(64) NOT NULL, " +
			"k VARCHAR(64) NOT NULL, seq BIGINT NOT NULL, prev BIGINT NOT NULL)",
		"CREATE INDEX " + p.prefix + "prove_of_key ON " + p.table("effects") + " (consumer, k, seq)",
		"CREATE INDEX " + p.prefix + "prove_of_message ON " + p.table("effects") + " (consumer, message)",
	} {
		if _, err := p.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	for n := range keys {
		if _, err := p.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (k, seq) VALUES ('%s', 0)", p.table("keys"), keyName(n))); err != nil {
			return err
		}
	}
	if err := p.skipsLocked(ctx); err != nil {
		return err
	}
	return postbox.Migrate(ctx, p.database())
}

// skipPatience is how long a statement may take that must not wait.
const skipPatience = 5 * time.Second

// skipsLocked refuses a server on which two transactions can have the same row, or on which one
// waits for the other: Postbox rests on FOR UPDATE SKIP LOCKED.
func (p *place) skipsLocked(ctx context.Context) error {
	if p.dialect == postbox.SQLite { // which has one writer
		return nil
	}
	try := func() (tx *sql.Tx, found bool, err error) {
		if tx, err = p.db.BeginTx(ctx, nil); err != nil {
			return nil, false, err
		}
		ctx, cancel := context.WithTimeout(ctx, skipPatience)
		defer cancel()
		var key string
		err = tx.QueryRowContext(ctx, fmt.Sprintf("SELECT k FROM %s WHERE k = '%s' FOR UPDATE SKIP LOCKED", p.table("keys"), keyName(0))).Scan(&key)
		if errors.Is(err, sql.ErrNoRows) {
			return tx, false, nil
		}
		if err != nil && ctx.Err() != nil { // the driver may return the server's error
			err = ctx.Err()
		}
		return tx, err == nil, err
	}
	refusal := func(err error) error {
		if dialect.Kind(p.dialect).Classify(err) == dialect.Unavailable {
			return err
		}
		return refusef("the server does not execute FOR UPDATE SKIP LOCKED, without which a message could be handled twice: %w", err)
	}
	first, found, err := try()
	if first != nil {
		defer func() { _ = first.Rollback() }()
	}
	if err != nil || !found {
		return refusal(cmp.Or(err, sql.ErrNoRows))
	}
	second, found, err := try()
	if second != nil {
		defer func() { _ = second.Rollback() }()
	}
	switch {
	case found:
		return refusef("FOR UPDATE SKIP LOCKED locks nothing on this server: two transactions got the same row, so a message could be handled twice")
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return refusef("FOR UPDATE SKIP LOCKED waits for a locked row on this server, and does not leave it out")
	case err != nil:
		return refusal(err)
	}
	return nil
}

// executor is a pool or a transaction.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// makeSign makes the table with the sign of life, and the schema that it is in.
func (p *place) makeSign(ctx context.Context, db executor) error {
	if p.schema != "" {
		if _, err := db.ExecContext(ctx, "CREATE SCHEMA "+p.schema); err != nil {
			return err
		}
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE "+p.table("run")+" (beat BIGINT NOT NULL)"); err != nil {
		return err
	}
	var now int64
	if err := db.QueryRowContext(ctx, p.clock).Scan(&now); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (beat) VALUES (%d)", p.table("run"), now))
	return err
}

// keepAlive gives signs of life until the function that it returns is called.
func (p *place) keepAlive(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	beating.Go(func() {
		for wait(ctx, beat) {
			if p.folder != "" {
				_ = os.Chtimes(p.folder, time.Time{}, time.Now())
				continue
			}
			var now int64
			if p.db.QueryRowContext(ctx, p.clock).Scan(&now) == nil {
				_, _ = p.db.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET beat = %d", p.table("run"), now))
			}
		}
	})
	return func() {
		cancel()
		beating.Wait()
	}
}

// drop removes what the run has made. A killed process may still hold locks for a moment.
func (p *place) drop(ctx context.Context) error {
	if !p.made {
		return nil
	}
	if p.folder != "" {
		return errors.Join(p.close(), os.RemoveAll(p.folder))
	}
	for {
		err := p.remove(ctx, p.schema, p.prefix)
		if err == nil || !wait(ctx, retryPause) {
			return err
		}
	}
}

// remove removes a schema, or all tables with a prefix: that of the signs of life is the last, so
// that the next run finds the rest after a crash.
func (p *place) remove(ctx context.Context, schema, prefix string) error {
	if schema != "" {
		_, err := p.db.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
		return err
	}
	tables, err := p.tables(ctx)
	if err != nil {
		return err
	}
	tables = slices.DeleteFunc(tables, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	last := prefix + ownPrefix + "run"
	slices.SortFunc(tables, func(a, b string) int {
		switch last {
		case a:
			return 1
		case b:
			return -1
		}
		return strings.Compare(a, b)
	})
	for _, table := range tables {
		drop := "DROP TABLE IF EXISTS " + table //nolint:gosec // a name of ours
		if p.dialect == postbox.PostgreSQL {
			drop += " CASCADE" // with the functions that return its rows
		}
		if table == last && p.dialect == postbox.PostgreSQL {
			if err := p.removeFunctions(ctx, prefix); err != nil {
				return err
			}
		}
		if _, err := p.db.ExecContext(ctx, drop); err != nil {
			return err
		}
	}
	return nil
}

func (p *place) removeFunctions(ctx context.Context, prefix string) error {
	functions, err := p.strings(ctx, "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND starts_with(proname, '"+prefix+"')")
	for _, function := range functions {
		if err == nil {
			_, err = p.db.ExecContext(ctx, "DROP FUNCTION IF EXISTS "+function)
		}
	}
	return err
}

func (p *place) tables(ctx context.Context) ([]string, error) {
	current := "database()"
	if p.dialect == postbox.PostgreSQL {
		current = "current_schema()"
	}
	return p.strings(ctx, "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema = "+current+
		" AND table_name LIKE '"+strings.ReplaceAll(namePrefix, "_", "!_")+"%' ESCAPE '!'")
}

func (p *place) strings(ctx context.Context, query string) (found []string, err error) {
	rows, err := p.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		found = append(found, text)
	}
	return found, rows.Err()
}

// sweep removes what runs have left that were killed.
func (p *place) sweep(ctx context.Context, say func(string)) error {
	if p.folder != "" {
		return p.sweepFolders(say)
	}
	var schemas []string
	var err error
	if p.dialect == postbox.PostgreSQL {
		schemas, err = p.strings(ctx, "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, '"+namePrefix+"') AND pg_has_role(nspowner, 'USAGE')")
		if err != nil {
			return err
		}
	}
	for _, schema := range schemas {
		if ofRun.FindString(schema) == schema {
			if err := p.bury(ctx, schema, "", "the schema "+schema, say); err != nil {
				return err
			}
		}
	}
	tables, err := p.tables(ctx)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, table := range tables {
		name := ofRun.FindString(table)
		if name == "" || !strings.HasPrefix(table, name+"_") || seen[name] {
			continue
		}
		seen[name] = true
		if err := p.bury(ctx, "", name+"_", "the tables "+name+"_*", say); err != nil {
			return err
		}
	}
	return nil
}

// bury removes what a run has left, unless it may be alive. Tables without a sign of life are those
// of a run that begins or that is being removed.
func (p *place) bury(ctx context.Context, schema, prefix, what string, say func(string)) error {
	var now, last int64
	if err := p.db.QueryRowContext(ctx, p.clock).Scan(&now); err != nil {
		return err
	}
	err := p.db.QueryRowContext(ctx, "SELECT MAX(beat) FROM "+p.of(schema, prefix, "run")).Scan(&last)
	if err != nil && dialect.Kind(p.dialect).Classify(err) == dialect.Unavailable {
		return err
	}
	text := "Another run may work in " + what + ": it is left alone."
	if err == nil && now-last >= dead.Microseconds() {
		text = "Removed " + what + ", which an earlier run had left."
		if err := p.remove(ctx, schema, prefix); err != nil {
			text = fmt.Sprintf("An earlier run has left %s, which cannot be removed now: %s", what, err)
		}
	}
	say(text)
	return nil
}

func (p *place) sweepFolders(say func(string)) error {
	folders, err := filepath.Glob(filepath.Join(filepath.Dir(p.folder), namePrefix+"*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err != nil || !info.IsDir() || ofRun.FindString(filepath.Base(folder)) != filepath.Base(folder) {
			continue
		}
		if folder == p.folder {
			continue
		}
		if time.Since(info.ModTime()) < dead {
			say("Another run may work in the folder " + folder + ": it is left alone.")
			continue
		}
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
		say("Removed the folder " + folder + ", which an earlier run had left.")
	}
	return nil
}
