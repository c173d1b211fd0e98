package place

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/lib/pq"
)

// The tables of the business. Nothing there is unique: a second effect must show, not fail.
const business = `
CREATE TABLE orders (ordering_key TEXT NOT NULL, seq BIGINT NOT NULL);
CREATE TABLE effects (id BIGINT GENERATED ALWAYS AS IDENTITY, consumer TEXT NOT NULL, ordering_key TEXT NOT NULL, seq BIGINT NOT NULL)`

const insertOrder = `INSERT INTO orders (ordering_key, seq) VALUES ($1, $2)`

// insertOrders writes the numbers from 1 on, of many keys.
const insertOrders = `
INSERT INTO orders (ordering_key, seq)
SELECT ordering_key, generate_series(1, last) FROM unnest($1::text[], $2::bigint[]) AS committed(ordering_key, last)`

const insertEffect = `INSERT INTO effects (consumer, ordering_key, seq) VALUES ($1, $2, $3)`

// account compares what a consumer has applied with what was committed.
const account = `
SELECT (SELECT count(*) FROM orders),
       (SELECT count(*) FROM effects WHERE consumer = $1),
       (SELECT count(*) FROM orders o LEFT JOIN effects e
          ON e.consumer = $1 AND e.ordering_key = o.ordering_key AND e.seq = o.seq WHERE e.id IS NULL),
       (SELECT coalesce(sum(n - 1), 0)
          FROM (SELECT count(*) AS n FROM effects WHERE consumer = $1 GROUP BY ordering_key, seq) counted),
       (SELECT count(*)
          FROM (SELECT seq < lag(seq) OVER (PARTITION BY ordering_key ORDER BY id) AS late FROM effects WHERE consumer = $1) lagged
         WHERE late)`

// gauge asks the database how large things are. Dead rows and vacuums are those of the table of
// ready messages, as its statistics know them.
const gauge = `
SELECT pg_table_size('postbox_messages') + pg_table_size('postbox_waiting'),
       pg_indexes_size('postbox_messages') + pg_indexes_size('postbox_waiting'),
       (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'postbox_messages'::regclass),
       (SELECT vacuum_count + autovacuum_count FROM pg_stat_user_tables WHERE relid = 'postbox_messages'::regclass),
       (SELECT count(*) FROM postbox_claims),
       (SELECT count(*) FROM pg_stat_activity WHERE application_name = $1)`

// Order writes the business row of a message.
func Order(ctx context.Context, tx *sql.Tx, key string, seq int64) error {
	_, err := tx.ExecContext(ctx, insertOrder, key, seq)
	return err
}

// Record writes down what was committed, in the end: of each key the numbers from 1 to the last.
func (p *Place) Record(ctx context.Context, keys []string, last []int64) error {
	_, err := p.watch.ExecContext(ctx, insertOrders, pq.Array(keys), pq.Array(last))
	return err
}

// Apply is the effect of a message.
func Apply(ctx context.Context, tx *sql.Tx, consumer, key string, seq int64) error {
	_, err := tx.ExecContext(ctx, insertEffect, consumer, key, seq)
	return err
}

// Account is what became of all that was committed, at one consumer.
type Account struct {
	Committed, Applied int64
	// Lost was committed and not applied, Twice is how often something was applied again,
	// Disordered how often a message was applied after a later one of its key.
	Lost, Twice, Disordered int64
}

// Add returns the sum of two.
func (a Account) Add(b Account) Account {
	return Account{
		Committed: a.Committed + b.Committed, Applied: a.Applied + b.Applied,
		Lost: a.Lost + b.Lost, Twice: a.Twice + b.Twice, Disordered: a.Disordered + b.Disordered,
	}
}

// Fault returns what is wrong with the account.
func (a Account) Fault() error {
	if a.Lost == 0 && a.Twice == 0 && a.Disordered == 0 {
		return nil
	}
	return fmt.Errorf("of %d messages, %d are lost, %d were applied twice, %d came after a later one of their key",
		a.Committed, a.Lost, a.Twice, a.Disordered)
}

// Account compares what a consumer has applied with what was committed.
func (p *Place) Account(ctx context.Context, consumer string) (a Account, err error) {
	err = p.watch.QueryRowContext(ctx, account, consumer).Scan(&a.Committed, &a.Applied, &a.Lost, &a.Twice, &a.Disordered)
	return a, err
}

// Gauge is how large things are, in bytes, rows and connections.
type Gauge struct {
	Table, Indexes, DeadRows, Vacuums, Claims, Connections int64
}

// Gauge asks the database.
func (p *Place) Gauge(ctx context.Context) (g Gauge, err error) {
	ctx, cancel := context.WithTimeout(ctx, gaugeTimeout)
	defer cancel()
	err = p.watch.QueryRowContext(ctx, gauge, p.name).Scan(&g.Table, &g.Indexes, &g.DeadRows, &g.Vacuums, &g.Claims, &g.Connections)
	return g, err
}

// gaugeTimeout is far more than a look at statistics takes.
const gaugeTimeout = 10 * time.Second
