package main

// ofTheSettlement are those of storing what became of messages.
var ofTheSettlement = []safeguard{
	{
		name: "fencing in the settle", guarantees: "G6, F10",
		edits: []edit{
			{
				file:  "internal/dialect/statements/postgresql.sql",
				from:  "((s.lane, s.token) IN (SELECT l.lane, l.token FROM",
				to:    "(s.lane IN (SELECT l.lane FROM",
				every: true,
			},
			{
				file: "internal/dialect/migrations/postgresql/00001_postbox.sql",
				from: "		WHERE s.state = 0 AND ((s.lane, s.token) IN (SELECT l.lane, l.token FROM",
				to:   "		WHERE s.state = 0 AND (s.lane IN (SELECT l.lane FROM",
			},
			{
				file: "internal/dialect/statements/postgresql.sql",
				from: "AND l.lane = m.lane AND l.token = :token\n",
				to:   "AND l.lane = m.lane AND (l.token = :token OR TRUE)\n",
			},
			{
				file: "internal/dialect/statements/sqlite.sql",
				from: "l.lane = s.value ->> 0 AND l.token = s.value ->> 1\n\tWHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3)\n-- if seen",
				to:   "l.lane = s.value ->> 0\n\tWHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3)\n-- if seen",
			},
		},
		packages: []string{module + "internal/drain", module + "queue"}, tests: "F10|G6|lost_the_lease|lease_was_lost|leases_are_lost|lane_of_a_commit|keeps_its_lease|TestRemoval_G4|TestSettlement_G3|Model",
	},
	{
		name: "fencing in the settle of one message, on MariaDB", guarantees: "G6, F10",
		edits: []edit{{
			file: "internal/dialect/statements/mysql.sql",
			from: "AND l.lane = m.lane AND l.token = :token\n",
			to:   "AND l.lane = m.lane AND (l.token = :token OR TRUE)\n",
		}},
		packages: []string{module + "internal/drain", module + "queue"}, tests: "F10|G6|lost_the_lease|lease_was_lost",
	},
	{
		name: "settle by id list", guarantees: "G2, F4",
		edits: []edit{
			{
				file:  "internal/dialect/statements/postgresql.sql",
				from:  "AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at",
				to:    "AND m.id <= s.id",
				every: true,
			},
			{
				file:  "internal/dialect/statements/postgresql.sql",
				from:  "	LIMIT 1) AS m\nWHERE ((s.lane",
				to:    "	) AS m\nWHERE ((s.lane",
				every: true,
			},
			{
				file:  "internal/dialect/statements/postgresql.sql",
				from:  "	LIMIT 1\n-- if lock\n",
				to:    "-- if lock\n",
				every: true,
			},
			{
				file: "internal/dialect/statements/postgresql.sql",
				from: "WHERE m.spool = :spool AND m.state = 0 AND m.lane = :lane AND m.id = :id AND m.created_at = :created_at\n  AND l.spool",
				to:   "WHERE m.spool = :spool AND m.state = 0 AND m.lane = :lane AND m.id <= :id AND m.created_at <= :created_at\n  AND l.spool",
			},
			{
				file: "internal/dialect/statements/sqlite.sql",
				from: "DELETE FROM postbox_messages WHERE id IN (\n\tSELECT m.id FROM json_each(:refs) s\n\tCROSS JOIN postbox_messages m ON m.id = s.value ->> 2",
				to:   "DELETE FROM postbox_messages WHERE id IN (\n\tSELECT m.id FROM json_each(:refs) s\n\tCROSS JOIN postbox_messages m ON m.id <= s.value ->> 2",
			},
			{
				file: "internal/dialect/statements/sqlite.sql",
				from: "AND m.created_at = s.value ->> 3)\n-- if seen",
				to:   "AND m.created_at <= s.value ->> 3)\n-- if seen",
			},
		},
		packages: []string{module + "internal/drain"}, tests: "late_committer|Model",
	},
	{
		name: "a message whose row is locked rests", guarantees: "G3, G4",
		edits: []edit{{
			file: "internal/drain/conclude.go",
			from: "		if locked[e.Message.Ref.ID] {\n			s.awaitLock(e)\n",
			to:   "		if locked[e.Message.Ref.ID] && e.Locked {\n			s.awaitLock(e)\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "Model",
	},
	{
		name: "a message whose row is locked closes its key", guarantees: "G3",
		edits: []edit{{
			file: "internal/schedule/setback.go",
			from: "	e.queue.blocked = true\n	e.keepClosed()\n",
			to:   "	e.keepClosed()\n",
		}},
		packages: []string{module + "internal/schedule", module + "internal/drain"}, tests: "TestScheduler_hold|TestDrainer_G3_a_locked_row",
	},
	{
		name: "a message that rests closes its key", guarantees: "G3",
		edits: []edit{{
			file: "internal/drain/setback.go",
			from: "	s.scheduler.CloseKey(e)\n",
			to:   "	s.scheduler.Signal()\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "lasting_conflict",
	},
}
