package main

import (
	"context"
	"errors"
	"fmt"
)

// orders counts those of this run on all servers.
func (d *demo) orders(ctx context.Context) (sum int, err error) {
	for _, one := range d.all {
		n, err := count(ctx, one, `SELECT COUNT(*) FROM sharded_orders WHERE starts_with(account, $1)`, d.topic)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// entry is an order, or its effect.
type entry struct {
	account        string
	version, cents int64
}

func (d *demo) entries(ctx context.Context, at *shard, table string) (found []entry, err error) {
	query := `SELECT account, version, cents FROM ` + table + ` WHERE starts_with(account, $1)` //nolint:gosec // a table of ours
	rows, err := at.database.DB.QueryContext(ctx, query, d.topic)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e entry
		if err := rows.Scan(&e.account, &e.version, &e.cents); err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, rows.Err()
}

// judge compares what the servers committed with what was billed.
func (d *demo) judge(ctx context.Context) error {
	billed, err := d.entries(ctx, d.all[0], "sharded_effects")
	if err != nil {
		return err
	}
	effects := map[entry]int{}
	for _, e := range billed {
		effects[e]++
	}
	var orders, lost, twice, wrongBalances int
	balances := map[string]int64{}
	for _, one := range d.all {
		placed, err := d.entries(ctx, one, "sharded_orders")
		if err != nil {
			return err
		}
		for _, e := range placed {
			orders++
			balances[e.account] += e.cents
			if n := effects[e]; n == 0 {
				lost++
			} else {
				twice += n - 1
			}
			delete(effects, e)
		}
	}
	violations, err := count(ctx, d.all[0], `SELECT COUNT(*) FROM sharded_violations WHERE starts_with(account, $1)`, d.topic)
	if err != nil {
		return err
	}
	at := 0 // accounts that are on exactly one server
	for _, one := range d.all {
		rows, err := d.entries(ctx, one, "(SELECT * FROM sharded_accounts WHERE moved_to IS NULL) here")
		if err != nil {
			return err
		}
		at += len(rows)
		for _, row := range rows {
			if row.cents != balances[row.account] {
				wrongBalances++
			}
		}
	}
	sums, err := d.entries(ctx, d.all[0], "sharded_billed")
	if err != nil {
		return err
	}
	for _, row := range sums {
		if row.cents != balances[row.account] {
			wrongBalances++
		}
	}
	d.say("RESULT lost=%d applied_twice=%d order_violations=%d never_committed=%d wrong_balances=%d orders=%d servers=%d moves=%d kills=%d",
		lost, twice, violations, len(effects), wrongBalances, orders, len(d.all), d.moves, d.kills)
	if lost+twice+violations+len(effects)+wrongBalances != 0 || at != accounts {
		return fmt.Errorf("this must not be; %d of %d accounts are on one server", at, accounts)
	}
	return nil
}
