package ledger

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postbox-go/watermill-postbox/proof/torture/history"
)

// tables of the run, on PostgreSQL. They have no unique constraint that the messages could run
// into: what happens twice must show, not fail.
//
//   - torture_keys has one row an ordering key. Whoever writes a message of the key counts its turn
//     up first, and so waits until the writer before it has committed: turns are the order of
//     causality.
//   - torture_intents has one row a message of the outbox, written in the message's transaction. It
//     is there if and only if the message is committed. Messages without a key have key ” and turn
//     0. parent is the message that a handler, named by emitter, was handling when it emitted this
//     one; both are ” for what producers write.
//   - torture_effects has one row a handled message and consumer, written in the transaction of the
//     inbox or queue, so it is there if and only if the handler's work is committed. id is the
//     order in which handlers of one key worked.
//   - torture_leases has one row each time that the holder or the token of a lane changed: a token
//     that stands there with two holders was held by two. holder is ” where a lane was handed back.
//     until is how long the lane is held, and before how long it was held until then, in
//     microseconds as Postbox counts them.
//
// at is the database's clock, in microseconds since 1970 too: processes' clocks are hours off.
const tables = `
	CREATE TABLE torture_keys (
		key  text PRIMARY KEY,
		turn bigint NOT NULL DEFAULT 0
	);
	CREATE TABLE torture_intents (
		id         bigserial,
		message_id text NOT NULL,
		key        text NOT NULL,
		turn       bigint NOT NULL,
		topic      text NOT NULL,
		plan       text NOT NULL,
		emitter    text NOT NULL,
		parent     text NOT NULL,
		at         bigint NOT NULL DEFAULT extract(epoch FROM clock_timestamp()) * 1000000
	);
	CREATE TABLE torture_effects (
		id         bigserial,
		consumer   text NOT NULL,
		message_id text NOT NULL,
		key        text NOT NULL,
		turn       bigint NOT NULL,
		topic      text NOT NULL,
		process    text NOT NULL,
		at         bigint NOT NULL DEFAULT extract(epoch FROM clock_timestamp()) * 1000000
	);
	CREATE TABLE torture_leases (
		id     bigserial,
		spool  integer NOT NULL,
		lane   smallint NOT NULL,
		token  bigint NOT NULL,
		holder text NOT NULL,
		until  bigint NOT NULL,
		before bigint NOT NULL,
		at     bigint NOT NULL DEFAULT extract(epoch FROM clock_timestamp()) * 1000000
	);
	CREATE TABLE torture_members (
		spool  integer NOT NULL,
		holder text NOT NULL,
		until  bigint NOT NULL
	);
	CREATE INDEX ON torture_effects (message_id);
	CREATE FUNCTION torture_note_member() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO torture_members (spool, holder, until) VALUES (OLD.spool, OLD.holder, OLD.expires_at);
		RETURN NULL;
	END $$;
	CREATE TRIGGER torture_note_member AFTER DELETE ON postbox_members FOR EACH ROW EXECUTE FUNCTION torture_note_member();
	CREATE FUNCTION torture_lease(of integer, who text) RETURNS bigint LANGUAGE sql AS $$
		SELECT COALESCE((SELECT expires_at FROM postbox_members WHERE spool = of AND holder = who),
			(SELECT MAX(until) FROM torture_members WHERE spool = of AND holder = who), 0)
	$$;
	CREATE FUNCTION torture_note_lease() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO torture_leases (spool, lane, token, holder, until, before)
		VALUES (NEW.spool, NEW.lane, NEW.token, COALESCE(NEW.holder, ''), torture_lease(NEW.spool, NEW.holder), torture_lease(OLD.spool, OLD.holder));
		RETURN NULL;
	END $$;
	CREATE TRIGGER torture_note_lease AFTER UPDATE ON postbox_lanes
		FOR EACH ROW WHEN (OLD.holder IS DISTINCT FROM NEW.holder OR OLD.token <> NEW.token)
		EXECUTE FUNCTION torture_note_lease();`

// Create makes the tables, beside those of Postbox, which must be there.
func Create(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make the tables of the run: %w", err)
	}
	return nil
}

// Intent is a message that somebody wants to send.
type Intent struct {
	Message string
	// Key is the ordering key, "" for none, and Turn its place among the messages of the key, from
	// 1.
	Key   string
	Turn  int64
	Topic string
	Plan  history.Plan
	// Emitter is the consumer whose handler emitted the message while it handled Parent; both are
	// empty for the messages of producers.
	Emitter, Parent string
}

// Write notes the intent in the transaction that its message is written in, and fills in its turn.
func (i *Intent) Write(ctx context.Context, tx *sql.Tx) error {
	if i.Key != "" {
		err := tx.QueryRowContext(ctx, `
			INSERT INTO torture_keys AS k (key, turn) VALUES ($1, 1)
			ON CONFLICT (key) DO UPDATE SET turn = k.turn + 1 RETURNING turn`, i.Key).Scan(&i.Turn)
		if err != nil {
			return fmt.Errorf("take a turn of key %q: %w", i.Key, err)
		}
	}
	_, err := tx.ExecContext(ctx, `
		INSERT INTO torture_intents (message_id, key, turn, topic, plan, emitter, parent) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		i.Message, i.Key, i.Turn, i.Topic, i.Plan, i.Emitter, i.Parent)
	if err != nil {
		return fmt.Errorf("write the intent of message %s: %w", i.Message, err)
	}
	return nil
}

// Effect is what a handler does.
type Effect struct {
	Consumer string
	Message  string
	Key      string
	Turn     int64
	Topic    string
	Process  string
}

// Write notes the effect in the transaction of the handler.
func (e Effect) Write(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO torture_effects (consumer, message_id, key, turn, topic, process) VALUES ($1, $2, $3, $4, $5, $6)`,
		e.Consumer, e.Message, e.Key, e.Turn, e.Topic, e.Process)
	if err != nil {
		return fmt.Errorf("write the effect of message %s: %w", e.Message, err)
	}
	return nil
}

// staleClaims are claims of long ago that a run begins with, so that there is something to purge.
// They are more than one step of a purge takes.
const staleClaims = 20_000

// AddStaleClaims writes them.
func AddStaleClaims(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `
		INSERT INTO postbox_claims (claimed_at, claim_key)
		SELECT 1, decode(md5(n::text) || md5('claim' || n), 'hex') FROM generate_series(1, $1) AS n`, staleClaims)
	if err != nil {
		return fmt.Errorf("write stale claims: %w", err)
	}
	return nil
}

// Waiting returns the messages that a flow has not handled yet, dead ones among them.
func Waiting(ctx context.Context, db *sql.DB, flow Flow) ([]string, error) {
	return messages(ctx, db, `
		SELECT message_id FROM torture_intents WHERE topic = $1
		EXCEPT SELECT message_id FROM torture_effects WHERE consumer = $2`, flow.Topic, flow.Consumer)
}

// Works says whether a flow has had any effect.
func Works(ctx context.Context, db *sql.DB, flow Flow) (works bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM torture_effects WHERE consumer = $1)", flow.Consumer).Scan(&works)
	return works, err
}

// Intents counts the messages there are.
func Intents(ctx context.Context, db *sql.DB) (n int, err error) {
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM torture_intents").Scan(&n)
	return n, err
}

// Effects counts what handlers have done.
func Effects(ctx context.Context, db *sql.DB) (n int, err error) {
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM torture_effects").Scan(&n)
	return n, err
}

// messages returns the ids that a query selects.
func messages(ctx context.Context, db *sql.DB, query string, args ...any) ([]string, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
