package main

// ofLanes are those of a change of the number of lanes.
var ofLanes = []safeguard{
	{
		name: "a read that sees a message in an old lane is thrown away", guarantees: "G3",
		edits: []edit{{
			file: "internal/dialect/common.go",
			from: "search + ` IS NOT NULL THEN -2 ELSE",
			to:   "search + ` IS NOT NULL AND 1 = 0 THEN -2 ELSE",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestLanes_G3",
	},
	{
		name: "an old lane that a process holds is not retired", guarantees: "G3, G6",
		edits: []edit{{
			file: "internal/dialect/lanes.go",
			from: "(l.lane < ? OR l.lane >= ?) AND (l.holder IS NULL OR l.expires_at <= {now})",
			to:   "(l.lane < ? OR l.lane >= ?) AND (l.holder IS NULL OR l.expires_at < ` + never + `)",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestLanes_G3",
	},
	{
		name: "drainers read again after messages were moved", guarantees: "G2, G3",
		edits: []edit{{
			file: "internal/dialect/lanes.go",
			from: "SET version = version + 1 WHERE id",
			to:   "SET version = version + 0 WHERE id",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestLanes_G3",
	},
	{
		name: "a process that does not know of a change moves nothing", guarantees: "G3",
		edits: []edit{{
			file: "internal/spool/oldlanes.go",
			from: "	if err == nil && n == 0 {\n		err = ErrOldLayout",
			to:   "	if err == nil && n < 0 {\n		err = ErrOldLayout",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestLanes_G3",
	},
	{
		name: "a layout that was not read lately is read again before it is used", guarantees: "G3",
		edits: []edit{{
			file: "internal/spool/registration.go",
			from: "now.Sub(s.readAt) >= age || now.Round(0).Sub(s.readAt) >= age",
			to:   "now.Sub(s.readAt) < 0",
		}},
		packages: []string{module + "internal/spool"}, tests: "TestLanes_G3",
	},
	{
		name: "a change of lanes waits until no process uses a layout that was lost", guarantees: "G3",
		edits: []edit{{
			file: "internal/operate/setlanes.go",
			from: "case <-time.After(o.settling):",
			to:   "case <-time.After(0):",
		}},
		packages: []string{module + "internal/spool"}, tests: "TestLanes_G3",
	},
	{
		name: "a change of lanes gives no version a second time", guarantees: "G3",
		edits: []edit{{
			file: "internal/dialect/lanes.go",
			from: "version = CASE WHEN version < {now} THEN {now} ELSE version + 1 END",
			to:   "version = version + 1",
		}},
		packages: []string{module + "internal/spool"}, tests: "TestLanes_G3",
	},
	{
		name: "new lanes count for a limit when no message is in an old lane", guarantees: "G8",
		edits: []edit{{
			file: "internal/drain/limits.go",
			from: "	if d.counts {\n",
			to:   "	if d.layout.Lanes > 0 {\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestLimits_new_lanes",
	},
	{
		name: "a unique key finds a message that was moved to another lane", guarantees: "G2",
		edits: []edit{{
			file: "internal/dialect/unique_postgres.go",
			from: "u.lane NOT BETWEEN o.first_lane AND",
			to:   "u.lane >",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestLanes_G2",
	},
	{
		name: "a unique key finds a message that was moved to a lower lane", guarantees: "G4",
		edits: []edit{{
			file: "internal/dialect/unique_postgres.go",
			from: "u.lane NOT BETWEEN o.first_lane AND o.first_lane + o.lanes - 1",
			to:   "u.lane < o.first_lane",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestLanes_G4_a_unique_key",
	},
}
