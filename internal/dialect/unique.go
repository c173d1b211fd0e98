package dialect

import "strings"

// UniqueParams describe a message to store under a unique key.
type UniqueParams struct {
	Spool   int64
	Digest  []byte // of spool, topic and key
	Replace bool   // delete the message that waits under the key, instead of leaving out the new one
	Row     Row
}

// Unique holds the statements that store a message under a unique key. They run in this order, in
// one transaction.
type Unique struct {
	// Before locks the key, and finds out whether its message waits. It may delete that message.
	Before []Query
	// StoreFree inserts the row without looking for another message. It replaces the rest of
	// Before, and Store, as soon as a statement of Before has changed a row: the key is new, or its
	// message was deleted. Its text is empty where the number of changed rows does not show that.
	// Where it is not known, Before and Store do the same.
	StoreFree Query
	// Store inserts the row. It changes no row if another message waits and is not to be replaced.
	Store Query
	// After notes which message has the key, if Store inserted one. It deletes the message that
	// waits, if Before does not.
	After []Query
}

// UniqueKey is a unique key as the table has it: the message that was stored last under it.
type UniqueKey struct {
	Digest        []byte
	ID, CreatedAt int64
}

// uniqueTexts are the statements of one database. The lock is a statement of its own, because a
// statement that waits for a lock may still see the messages as they were before it waited.
type uniqueTexts struct {
	lock string // digest, spool; empty where a writing transaction excludes all others
	find string // finds out whether the message waits, where Store cannot do that
	// remove deletes the message that waits, unless it has failed: then others of its ordering key
	// may wait behind it, and drainers read those again when they settle the failed message.
	remove string
	// The next three insert a message: storeFree looks for no other one, store deletes one that
	// waits if there is no After, and storeIfNone inserts the message if none waits. Then the next
	// two note it under its key.
	storeFree, store, storeIfNone [2]string // for ready messages, and for those with a time, if they are in different tables
	note, noteIfNone              string
}

// filled returns the texts with everything filled in.
func (u uniqueTexts) filled(text func(string) string) uniqueTexts {
	for _, t := range []*string{
		&u.lock, &u.find, &u.remove, &u.storeFree[0], &u.storeFree[1], &u.store[0], &u.store[1], &u.storeIfNone[0], &u.storeIfNone[1], &u.note, &u.noteIfNone,
	} {
		*t = text(strings.TrimSpace(*t))
	}
	return u
}

// lockUnique returns the lock of a key.
func (u uniqueTexts) lockUnique(spool int64, digest []byte) Query {
	if u.lock == "" {
		return Query{}
	}
	return Query{Text: u.lock, Args: []any{digest, spool}}
}

// LockUnique locks a unique key until the transaction ends, and waits for other transactions that
// have it. Its text is empty on a database whose writing transactions exclude each other.
func (s *Statements) LockUnique(spool int64, digest []byte) Query {
	return s.lists.lockUnique(spool, digest)
}

// AppendUnique stores a message under a unique key.
func (s *Statements) AppendUnique(p UniqueParams) Unique { return s.lists.appendUnique(p) }

// UniqueKeysPage returns digest, id, created at, and whether the message is gone (1 or 0), of the
// keys after a digest.
func (s *Statements) UniqueKeysPage(after []byte, limit int) Query {
	return Query{Text: s.uniqueKeysPage, Args: []any{after, limit}}
}

// RemoveUniqueKey deletes a key, unless another message has been stored under it.
func (s *Statements) RemoveUniqueKey(k UniqueKey) Query {
	return Query{Text: s.removeUniqueKey, Args: []any{k.Digest, k.ID, k.CreatedAt}}
}

// uniqueKeys sets the statements of the cleanup. gone is true for a key u whose message no longer
// exists.
func (s *Statements) uniqueKeys(gone string) {
	s.uniqueKeysPage = `
SELECT u.digest, u.id, u.created_at, CASE WHEN ` + gone + ` THEN 1 ELSE 0 END
FROM {unique_keys} u WHERE u.digest > {blob ?} ORDER BY u.digest LIMIT ?`

	s.removeUniqueKey = `
DELETE FROM {unique_keys} WHERE digest = ? AND id = ? AND created_at = ?`
}
