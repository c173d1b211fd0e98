package main

const module = "github.com/postbox-go/watermill-postbox/"

// safeguards are what the guarantees rest on. What notices here is named again in docs/guarantees.md.
var safeguards = []safeguard{
	{
		name: "claim first", guarantees: "G4, F6",
		edits: []edit{{
			file: "inboxstore/once.go",
			from: `		claimed, err := s.exec(ctx, tx, s.statements.Claim, claim)
		switch {
		case err != nil:
			return storeError{outageError{fmt.Errorf("inbox: claim message: %w", err)}}
		case claimed == 0:
			return storeError{errDuplicate}
		default:
			return fn(ctx)
		}
`,
			to: `		if err := fn(ctx); err != nil {
			return err
		}
		claimed, err := s.exec(ctx, tx, s.statements.Claim, claim)
		switch {
		case err != nil:
			return storeError{outageError{fmt.Errorf("inbox: claim message: %w", err)}}
		case claimed == 0:
			return storeError{errDuplicate}
		default:
			return nil
		}
`,
		}},
		packages: []string{module + "inboxstore", module + "middleware"}, tests: "TestInbox|TestStore_.*(F2|F6)",
	},
	{
		name: "claim commits with the effect", guarantees: "G4, F2",
		edits: []edit{{
			file: "inboxstore/once.go",
			from: `	err = s.transact(ctx, live, func(ctx context.Context, tx *sql.Tx) error {
		claimed, err := s.exec(ctx, tx, s.statements.Claim, claim)
`,
			to: `	claimed := int64(0)
	result, err := s.db.ExecContext(ctx, s.statements.Claim, claim)
	if err == nil {
		claimed, err = result.RowsAffected()
	}
	err = s.transact(ctx, live, func(ctx context.Context, tx *sql.Tx) error {
`,
		}},
		packages: []string{module + "inboxstore"}, tests: "TestStore_.*(F2|F6|F26)",
	},
	{
		name: "fencing in the settle", guarantees: "G6, F10",
		edits: []edit{
			{
				file: "internal/dialect/postgres.go",
				from: `  AND l.spool = m.spool AND l.lane = s.lane AND l.token = s.token` + "`" + `

	removeOne := `,
				to: `  AND l.spool = m.spool AND l.lane = s.lane` + "`" + `

	removeOne := `,
			},
			{
				file: "internal/dialect/postgres.go",
				from: "AND l.lane = m.lane AND l.token = ?`\n\n\tkeep",
				to:   "AND l.lane = m.lane AND (l.token = ? OR TRUE)`\n\n\tkeep",
			},
			{
				file: "internal/dialect/sqlite.go",
				from: "l.lane = s.value ->> 0 AND l.token = s.value ->> 1\n\tWHERE m.spool = ? AND m.lane = s.value ->> 0)`,\n\t\tkeepText",
				to:   "l.lane = s.value ->> 0\n\tWHERE m.spool = ? AND m.lane = s.value ->> 0)`,\n\t\tkeepText",
			},
		},
		packages: []string{module + "internal/spool", module + "inboxstore"}, tests: "F10|G6|Model",
	},
	{
		name: "settle by id list", guarantees: "G2, F4",
		edits: []edit{
			{
				file: "internal/dialect/postgres.go",
				from: `WHERE m.spool = ? AND m.state = s.state AND m.lane = s.lane AND m.id = s.id
  AND l.spool = m.spool AND l.lane = s.lane AND l.token = s.token` + "`" + `

	removeOne := `,
				to: `WHERE m.spool = ? AND m.state = s.state AND m.lane = s.lane AND m.id <= s.id
  AND l.spool = m.spool AND l.lane = s.lane AND l.token = s.token` + "`" + `

	removeOne := `,
			},
			{
				file: "internal/dialect/postgres.go",
				from: "WHERE m.spool = ? AND m.state = ? AND m.lane = ? AND m.id = ?\n  AND l.spool",
				to:   "WHERE m.spool = ? AND m.state = ? AND m.lane = ? AND m.id <= ?\n  AND l.spool",
			},
			{
				file: "internal/dialect/sqlite.go",
				from: "DELETE FROM {messages} WHERE id IN (\n\tSELECT m.id FROM json_each(?) s\n\tCROSS JOIN {messages} m ON m.id = s.value ->> 2",
				to:   "DELETE FROM {messages} WHERE id IN (\n\tSELECT m.id FROM json_each(?) s\n\tCROSS JOIN {messages} m ON m.id <= s.value ->> 2",
			},
		},
		packages: []string{module + "internal/spool"}, tests: "F4|Model",
	},
	{
		name: "failure record of its own", guarantees: "G4, F14",
		edits: []edit{
			{file: "middleware/inbox.go", from: "	before := msg.Context()\n", to: "	recorded := 0\n	before := msg.Context()\n"},
			{
				file: "middleware/inbox.go",
				from: "		return emitter{i.config.Outbox, i.config.PublishTopic}.handle(ctx, msg, h)\n",
				to: `		err := emitter{i.config.Outbox, i.config.PublishTopic}.handle(ctx, msg, h)
		if err != nil {
			recorded, _ = i.store.RecordFailure(ctx, key, err)
		}
		return err
`,
			},
			{file: "middleware/inbox.go", from: "i.failed(ctx, key, msg, failure.Err)", to: "i.failed(ctx, key, msg, failure.Err, recorded)"},
			{
				file: "middleware/inbox.go",
				from: "cause error) error {\n	attempts, err := i.store.RecordFailure(ctx, key, cause)\n	if err != nil {\n		return errors.Join(cause, err)\n	}\n",
				to:   "cause error, attempts int) error {\n",
			},
		},
		packages: []string{module + "middleware"}, tests: "Inbox",
	},
	{
		name: "late-row search", guarantees: "G3, F4",
		edits: []edit{
			{file: "internal/spool/horizon.go", from: "	return h.safe\n", to: "	return h.newest\n"},
			{file: "internal/spool/lanes.go", from: "return !now.Before(s.nextSweep)", to: "return false && now.IsZero()"},
		},
		packages: []string{module + "internal/spool"}, tests: "F4|Horizon",
	},
	{
		name: "stored before acked", guarantees: "G5",
		edits: []edit{{
			file: "middleware/defer.go",
			from: "	_, err := d.store.Defer(ctx, d.queue, key, stored)\n	return err\n",
			to:   "	go func() { _, _ = d.store.Defer(ctx, d.queue, key, stored) }()\n	return nil\n",
		}},
		packages: []string{module + "middleware"}, tests: "Defer",
	},
	{
		name: "outage is no failure", guarantees: "G7, F13",
		edits: []edit{{
			file: "forwarder/relay.go",
			from: "		return spool.Outcome{Verdict: spool.Postpone, Err: err}\n	case postbox.MessageFault:",
			to:   "		return spool.OutcomeOf(err)\n	case postbox.MessageFault:",
		}},
		packages: []string{module + "forwarder"}, tests: "F13|G7",
	},
	{
		name: "a failed message holds back its key", guarantees: "G3",
		edits: []edit{{
			file: "internal/spool/scheduler.go",
			from: "if !e.outcome.through() || e.dropped || e.message.Ref.State == dialect.StateRetrying {",
			to:   "if e.dropped || e.message.Ref.State > dialect.StateRetrying {",
		}},
		packages: []string{module + "internal/spool"}, tests: "Drainer_.*(G3|N8)|Model",
	},
	{
		name: "a savepoint for each turn in a group", guarantees: "G1",
		edits: []edit{{
			file: "forwarder/group.go",
			from: "			_ = g.exec(live, rollback) && g.exec(live, release)\n",
			to:   "			g.exec(live, release)\n",
		}, {
			file: "forwarder/group.go",
			from: "	set, rollback, release := dialect.Savepoint",
			to:   "	set, _, release := dialect.Savepoint",
		}},
		packages: []string{module + "forwarder"}, tests: "GroupCommit",
	},
	{
		name: "a shared commit that fails is no fault of all", guarantees: "G1",
		edits: []edit{{
			file: "forwarder/group.go",
			from: "		return outcome{again: true}\n	}\n	err := spool.Commit(ctx, g.conn, g.tx)\n",
			to:   "		return outcome{}\n	}\n	err := spool.Commit(ctx, g.conn, g.tx)\n",
		}},
		packages: []string{module + "forwarder"}, tests: "GroupCommit",
	},
	{
		name: "a wave of a key at a time", guarantees: "G3",
		edits: []edit{{
			file: "brokers/kafkabroker/wave.go",
			from: "		if out.key != \"\" {\n			seen[out.key]++\n		}\n",
			to:   "",
		}},
		packages: []string{module + "brokers/kafkabroker"}, tests: "Batch|Publisher_.*G3",
	},
	{
		name: "nothing is handed out after the lease", guarantees: "G6, F10",
		edits: []edit{{
			file: "internal/spool/scheduler.go",
			from: " || !time.Now().Before(s.deadline) {",
			to:   " {",
		}},
		packages: []string{module + "internal/spool"}, tests: "G6|F10|Lease|Scheduler|Model",
	},
}
