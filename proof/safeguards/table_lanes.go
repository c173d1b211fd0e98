package main

// ofLanes are those of the lease, which belongs to the member, and of taking lanes.
var ofLanes = []safeguard{
	{
		name: "a lane is taken only if its holder is no member", guarantees: "G3, G6",
		edits: []edit{
			{file: "internal/dialect/statements/postgresql.sql", from: "w.spool = :spool))),\n\tmine AS", to: "w.spool = :spool AND 1 = 0))),\n\tmine AS"},
			{file: "internal/dialect/statements/mysql.sql", from: "w.spool = :spool)) ORDER BY lane", to: "w.spool = :spool AND 1 = 0)) ORDER BY lane"},
			{file: "internal/dialect/statements/sqlite.sql", from: "w.spool = :spool)) ORDER BY lane", to: "w.spool = :spool AND 1 = 0)) ORDER BY lane"},
		},
		packages: []string{module + "internal/drain"}, tests: "TestDrainer_lanes_are_shared_out_fairly|TestLease_G6",
	},
	{
		name: "a member that was deleted hands back its lanes before it joins again", guarantees: "G3, G6",
		edits: []edit{{
			file: "internal/drain/lease.go",
			from: "le.execIsolated(ctx, statements.ReleaseAll(le.member()))",
			to:   "le.execIsolated(ctx, statements.ReleaseAll(dialect.Member{}))",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestLease_G6",
	},
	{
		name: "a lane is taken only as it was when the members were read", guarantees: "G3, G6",
		edits: []edit{
			{file: "internal/dialect/statements/mysql.sql", from: "WHERE l.spool = :spool AND l.token = s.token\n", to: "WHERE l.spool = :spool AND s.token = s.token\n"},
		},
		packages: []string{module + "internal/drain"}, tests: "TestLease_G6",
	},
	{
		name: "an id that was not read lately is read again before it is used", guarantees: "G2",
		edits: []edit{{
			file: "internal/spool/registration.go",
			from: "now.Sub(s.readAt) >= age || now.Round(0).Sub(s.readAt) >= age",
			to:   "now.Sub(s.readAt) < 0",
		}},
		packages: []string{module + "internal/spool"}, tests: "TestOpen_G2",
	},
}
