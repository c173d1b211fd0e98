package dialect

import "slices"

// readyValues returns the arguments for AppendOne.
func readyValues(spool int64, r Row) args {
	var hash, key any
	if r.KeyHash != nil {
		hash, key = *r.KeyHash, r.Key
	}
	return args{
		"spool": spool, "lane": r.Lane, "key_hash": hash, "topic": r.Topic, "message_id": r.MessageID, "key": key,
		"payload": r.Payload, "metadata": r.Metadata,
	}
}

func (p postgres) ingest(spool int64, claims [][]byte, rows []Row) Ingest {
	return Ingest{Whole: p.packed("Ingest", spool, claims, rows)}
}

func (p postgres) append(spool int64, rows []Row) []Query {
	if len(rows) == 1 && allReady(rows) {
		return []Query{p.query("AppendOne", readyValues(spool, rows[0]))}
	}
	return []Query{p.packed("Append", spool, nil, rows)}
}

// packed returns a statement for rows that are all ready, as they usually are, or for rows of which
// some wait, which need more arrays.
func (p postgres) packed(name string, spool int64, claims [][]byte, rows []Row) Query {
	values := pack(claims, rows)
	values["spool"] = spool
	if allReady(rows) {
		return p.query(name+"Ready", values)
	}
	var states, dues, delays arrayText
	for _, r := range rows {
		states.addNumber(int64(r.State))
		dues.addNumber(r.Due)
		delays.addNumber(r.Delay)
	}
	values["states"], values["dues"], values["delays"] = states.String(), dues.String(), delays.String()
	return p.query(name+"Mixed", values)
}

// pack returns the arguments for rows. There are no claims, or one for each row.
func pack(claims [][]byte, rows []Row) args {
	size := 0
	for i, r := range rows {
		size += len(r.MessageID) + len(r.Key) + len(r.Payload) + len(r.Metadata)
		if claims != nil {
			size += len(claims[i])
		}
	}
	bytes := make([]byte, 0, size)
	begins, lanes, hashes, topics := newArrayText(len(rows)), newArrayText(len(rows)), newArrayText(len(rows)), newArrayText(len(rows))
	var sizes [5]arrayText
	for part := range sizes {
		sizes[part] = newArrayText(len(rows))
	}
	for i, r := range rows {
		parts := [len(sizes)][]byte{nil, r.MessageID, r.Key, r.Metadata, r.Payload}
		if claims != nil {
			parts[0] = claims[i]
		}
		begins.addNumber(int64(len(bytes)) + 1)
		for part, content := range parts {
			bytes = append(bytes, content...)
			if part == len(parts)-1 && content == nil {
				sizes[part].addNullable(nil)
				continue
			}
			sizes[part].addNumber(int64(len(content)))
		}
		lanes.addNumber(int64(r.Lane))
		hashes.addNullable(r.KeyHash)
		topics.addWord(r.Topic)
	}
	return args{
		"bytes": bytes, "begins": begins.String(), "claim_sizes": sizes[0].String(), "id_sizes": sizes[1].String(), "key_sizes": sizes[2].String(),
		"metadata_sizes": sizes[3].String(), "payload_sizes": sizes[4].String(), "lanes": lanes.String(), "hashes": hashes.String(), "topics": topics.String(),
	}
}

// allReady reports whether all rows are ready.
func allReady(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return r.State != StateReady })
}

// wereReady reports whether all messages were ready before they were handled.
func wereReady(refs []Ref) bool {
	return !slices.ContainsFunc(refs, func(r Ref) bool { return r.State != StateReady })
}
