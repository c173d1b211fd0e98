package operatorsql

import "github.com/postbox-go/watermill-postbox/internal/dialect"

// Head is where the first message of a key is.
type Head struct {
	Lane int
	ID   int64
}

// StuckHeads returns the retrying messages that have a key and no earlier retrying message of it,
// in the order of their ids and up to a limit: the columns of [Statements.Search], the hash of the
// key, the time of the first failure or 0, and the text of the last one.
func (s *Statements) StuckHeads(spool int64, limit int) dialect.Query {
	var start int64
	var after [dialect.Lanes]*int64
	for lane := range after {
		after[lane] = &start
	}
	return s.stuckHeads.With(args{"spool": spool, "after": s.Nullable(after[:]), "most": limit})
}

// ReadyHeads returns the same columns of those of these messages that are ready.
func (s *Statements) ReadyHeads(spool int64, heads []Head) dialect.Query {
	lanes, ids := make([]int64, len(heads)), make([]int64, len(heads))
	for i, h := range heads {
		lanes[i], ids[i] = int64(h.Lane), h.ID
	}
	return s.query("ReadyHeads", args{"spool": spool, "lanes": s.Numbers(lanes), "ids": s.Numbers(ids)})
}

// WaitingOfKeys returns each of the keys, which are hashes, with ready messages: its lane, itself,
// the lowest id of these and their number, among so many messages of each lane after an id. A row
// with NULL is about the messages of a lane's other keys, and so is one of a key that has the hash
// of one of them.
func (s *Statements) WaitingOfKeys(spool int64, keys []int64, after [dialect.Lanes]*int64, limit int) dialect.Query {
	return s.waitingOfKeys.With(args{
		"spool": spool, "keys": s.Numbers(keys), "after": s.Nullable(after[:]), "most": limit,
	})
}

// CountStuck returns of each spool its id, how many keys have a retrying message, and how long ago
// the first of these messages failed, among so many messages.
func (s *Statements) CountStuck(spools []int64, limit int) []dialect.Query {
	return s.ofSpools("CountStuck", spools, limit)
}

// CountFewStuck is CountStuck for those that have fewer such messages, as [Statements.CountFew].
func (s *Statements) CountFewStuck(spools []int64, limit int) []dialect.Query {
	return s.ofFew("CountFewStuck", spools, limit+1)
}
