package dialect

// The statements of a drainer that has nothing to do while the log of its database tells what
// happens. PostgreSQL alone has them.

// idleLook is all that such a drainer executes. It renews the lease, and tells whether it has, how
// many members live, the version of the spool, the incarnation of the server, whether there is a
// message in one of the ranges, and in how many microseconds the first message is due that waits
// for its time.
const idleLook = `
WITH renewed AS (
	UPDATE {members} SET in_flight = :in_flight, expires_at = {now} + :ttl WHERE spool = :spool AND holder = :holder
	RETURNING 1)
SELECT (SELECT COUNT(*) FROM renewed), ` + liveMembers + `, ` + spoolVersion + `, ` + PostgresIncarnation + `,
       COALESCE((
	SELECT TRUE FROM unnest(:lanes::smallint[], :after::bigint[], :up_to::bigint[]) AS c(lane, after, up_to)
	CROSS JOIN LATERAL (
		SELECT m.id FROM ONLY {messages} m
		WHERE m.spool = :spool AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
		ORDER BY m.id LIMIT 1) f
	LIMIT 1), FALSE),
       COALESCE((SELECT m.available_at FROM {waiting} m WHERE m.spool = :spool ORDER BY m.available_at LIMIT 1), ` + never + `) - {now}`

// IdleParams are the parameters of a look.
type IdleParams struct {
	JoinParams
	Ranges []Range
}

// IdleLook renews leases and membership, and tells whether there is something to do.
func (s *Statements) IdleLook(p IdleParams) Query {
	lanes, afters, upTos := rangeArrays(p.Ranges)
	return s.idleLook.with(args{
		"spool": p.Spool, "holder": p.Holder, "in_flight": p.InFlight, "ttl": p.TTL, "lanes": lanes, "after": afters, "up_to": upTos,
	})
}
