package drain

import (
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// maxOfUnique is what a statement of one unique key may read and write: the rows of the key, of its
// message and of the new one, with all indexes of two tables.
const maxOfUnique = 100

// maxOfLane is what a look into one more lane costs, for messages of three states in both tables.
const maxOfLane = 15

// unique are the statements that store messages under unique keys: new ones, and those whose
// message is ready, has failed, or is gone.
func (w *plannedTables) unique() (all []planned) {
	w.t.Helper()
	w.exec("DELETE FROM postbox_unique_keys")
	const own = "INSERT INTO postbox_unique_keys (digest, id, created_at, spool, lane) "
	for _, key := range []string{"ready", "due", "failed"} {
		state := map[string]int{"ready": dialect.StateReady, "due": dialect.StateScheduled, "failed": dialect.StateRetrying}[key]
		w.exec(own+"SELECT ?, id, created_at, spool, lane FROM postbox_messages WHERE spool = ? AND state = ? ORDER BY id DESC LIMIT 1", []byte(key), w.spool, state)
	}
	w.exec(own+"VALUES (?, 1::bigint << 40, 1, ?, 0), (?, 1::bigint << 40, 1, ?, -1)", []byte("gone"), w.spool, []byte("in an old lane"), w.spool)
	of := func(key string, replace bool, state int) dialect.Unique {
		return w.own.Statements.AppendUnique(dialect.UniqueParams{Spool: w.spool, Digest: []byte(key), Replace: replace, Row: dialect.Row{
			State: state, Topic: "orders", MessageID: []byte("id"), Payload: []byte("payload"), Metadata: []byte("{}"),
		}})
	}
	one := func(name string, query dialect.Query, rows int) {
		all = append(all, planned{name: name, query: query, rows: rows, changes: true, buffers: maxOfUnique})
	}
	for state, table := range []string{"ready", "scheduled"} {
		one("lock a new key, "+table, of("new", false, state).Before[0], 0)
		one("store under a free key, "+table, of("gone", false, state).StoreFree, 1)
		one("store if none waits, "+table, of("gone", false, state).Store, 1)
		one("store if none waits, after one in an old lane, "+table, of("in an old lane", false, state).Store, 1)
		all[len(all)-1].buffers += maxOfLane * plannedLanes
		one("replace one that is gone, "+table, of("gone", true, state).Store, 1)
		for _, key := range []string{"ready", "due", "failed"} {
			one("skip if one waits, "+table+", "+key, of(key, false, state).Store, 0)
			one("replace one that waits, "+table+", "+key, of(key, true, state).Store, 1)
		}
	}
	one("remove one that is ready", of("ready", true, 0).Before[1], 1)
	one("remove one that is due", of("due", true, 0).Before[1], 1)
	return all
}
