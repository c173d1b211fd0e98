package dialect

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

// LockUnique locks a unique key until the transaction ends, and waits for other transactions that
// have it. Its text is empty on a database whose writing transactions exclude each other.
func (s *Statements) LockUnique(spool int64, digest []byte) Query {
	return s.query("LockUniqueKey", args{"digest": digest, "spool": spool})
}

// AppendUnique stores a message under a unique key.
func (s *Statements) AppendUnique(p UniqueParams) Unique { return s.lists.appendUnique(p) }

// UniqueKeysPage returns digest, id, created at, and whether the message is gone (1 or 0), of the
// keys after a digest.
func (s *Statements) UniqueKeysPage(after []byte, limit int) Query {
	return s.query("UniqueKeysPage", args{"after": after, "limit": limit})
}

// RemoveUniqueKey deletes a key, unless another message has been stored under it.
func (s *Statements) RemoveUniqueKey(k UniqueKey) Query {
	return s.query("RemoveUniqueKey", args{"digest": k.Digest, "id": k.ID, "created_at": k.CreatedAt})
}

// args are the arguments of all statements about a unique key.
func (p UniqueParams) args() args {
	var hash any
	if p.Row.KeyHash != nil {
		hash = *p.Row.KeyHash
	}
	return args{
		"spool": p.Spool, "digest": p.Digest, "lane": p.Row.Lane, "state": p.Row.State, "key_hash": hash, "due": p.Row.Due, "delay": p.Row.Delay,
		"topic": p.Row.Topic, "message_id": p.Row.MessageID, "key": p.Row.Key, "payload": p.Row.Payload, "metadata": p.Row.Metadata,
	}
}

func (p postgres) appendUnique(params UniqueParams) Unique {
	values, to := params.args(), "ready"
	if params.Row.State != StateReady {
		to = "waiting"
	}
	unique := Unique{
		Before:    []Query{p.LockUnique(params.Spool, params.Digest)},
		StoreFree: p.of("StoreUnique", to).with(values),
		Store:     p.of("StoreUnique", to, "none").with(values),
	}
	if params.Replace {
		unique.Before = append(unique.Before, p.query("RemoveOfUniqueKey", values))
		unique.Store = p.of("StoreUnique", to, "replace").with(values)
	}
	return unique
}

func (m mysql) appendUnique(p UniqueParams) Unique {
	values := p.args()
	unique := Unique{
		Before: []Query{m.LockUnique(p.Spool, p.Digest), m.query("FindOfUniqueKey", values)},
		Store:  m.query("StoreUniqueIfNone", values),
		After:  []Query{m.of("NoteUnique", "none").with(values)},
	}
	if p.Replace {
		// The removal comes after the new message: under REPEATABLE READ it locks the gap of a
		// message that is gone since the snapshot, and that gap ends at the new message instead of
		// at the end of the table, where others insert.
		unique.Store = m.query("StoreUnique", values)
		unique.After = []Query{m.query("RemoveOfUniqueKey", values), m.query("NoteUnique", values)}
	}
	return unique
}

func (s sqlite) appendUnique(p UniqueParams) Unique {
	values := p.args()
	unique := Unique{Store: s.of("StoreUnique", "none").with(values), After: []Query{s.query("NoteUnique", values)}}
	if p.Replace {
		unique.Before = []Query{s.query("RemoveOfUniqueKey", values)}
		unique.Store = s.query("StoreUnique", values)
	}
	return unique
}
