package main

import "strings"

// ofRefusals are those that rest on what the database has really done, where it reports no error.
var ofRefusals = []safeguard{
	{
		name: "a message that is buried leaves a dead letter", guarantees: "G2, G9",
		edits: []edit{{
			file: "internal/spool/tx.go",
			from: "	if err == nil && stored == 0 {\n",
			to:   "	if err == nil && stored < 0 {\n",
		}},
		packages: []string{module + "admin", module + "inboxstore"}, tests: "dead_letter_is_not_stored",
	},
	{
		name: "a row of a source that is buried leaves a dead letter", guarantees: "G2, G9",
		edits: []edit{{
			file: "sources/page.go",
			from: "		if stored == 0 {\n",
			to:   "		if stored < 0 {\n",
		}},
		packages: []string{module + "sources"}, tests: "dead_letter_is_not_stored",
	},
	{
		name: "what is not removed is not kept in the history", guarantees: "G9",
		edits: []edit{{
			file: "internal/spool/transactional.go",
			from: "	if err == nil && kept > 0 && int(removed) < len(refs) {\n",
			to:   "	if err == nil && removed < kept {\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestKeepAndRemove",
	},
	{
		name: "a suspect whose start cannot be counted rests", guarantees: "G8, F5",
		edits: []edit{{
			file: "internal/drain/worker.go",
			from: "Uncounted: !locked}",
			to:   "Uncounted: false}",
		}},
		packages: []string{module + "internal/drain"}, tests: "start_cannot_be_counted",
	},
	{
		name: "a suspect that was not handled stays one", guarantees: "F5",
		edits: []edit{{
			file: "internal/drain/conclude.go",
			from: "	if e.Outcome.Verdict == spool.Postpone && !e.Message.Counted {\n",
			to:   "	if e.Outcome.Verdict == spool.Postpone && false {\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "start_cannot_be_counted",
	},
	{
		name: "MySQL is asked for the transaction before a message is removed", guarantees: "G4, F10",
		edits: []edit{{
			file: "internal/inbox/transact.go",
			from: "	case w.NoticesEnd:\n",
			to:   "	case w.Settle != nil:\n",
		}},
		packages: []string{module + "internal/inbox"}, tests: "deadlock_that_a_handler_swallows",
	},
	{
		name: "a key that opens is read from the first message that was left out", guarantees: "G1, G7",
		edits: []edit{{
			file: "internal/schedule/scheduler.go",
			from: "			q.noteLeftOut(m.Ref)\n",
			to:   "			q.noteLeftOut(dialect.Ref{})\n",
		}},
		packages: []string{module + "internal/schedule"}, tests: "Settled_G1",
	},
	{
		name: "a full disk at the removal counts no attempt", guarantees: "G7",
		edits: []edit{{
			file: "internal/inbox/blame.go",
			from: "	case errors.Is(err, errWorks) && c.Statements.Kind.Exhausted(refusal):",
			to:   "	case errors.Is(err, errWorks) && c.Statements.Kind.Exhausted(nil):",
		}},
		packages: []string{module + "internal/inbox"}, tests: "full_file_of_sqlite_at_the_removal",
	},
	{
		name: "an outbox for dead letters that hangs has less time than a settlement", guarantees: "G3, G7",
		edits: []edit{{
			file: "internal/drain/parts.go",
			from: "		return max(c.configured.Renew, LockPatience)\n",
			to:   "		return spool.StatementTimeout\n",
		}},
		packages: []string{module + "queue"}, tests: "PoisonOutbox_that_hangs",
	},
	{
		name: "a dead letter that is refused leaves the memory", guarantees: "G8",
		edits: []edit{{
			file: "internal/drain/fate.go",
			from: "		if large {\n			m.Unload()",
			to:   "		if large && ctx == nil {\n			m.Unload()",
		}},
		packages: []string{module + "internal/drain"}, tests: "unloads_a_dead_letter",
	},
	{
		name: "a start that was not counted is not taken back", guarantees: "F5",
		edits: []edit{{
			file: "internal/drain/starts.go",
			from: "uncounted[m] == nil || errors.Is(err, postbox.ErrCommitUnknown)",
			to:   "uncounted[m] != spool.ErrLost || errors.Is(err, postbox.ErrCommitUnknown)",
		}},
		packages: []string{module + "internal/drain"}, tests: "start_cannot_be_counted",
	},
	{
		name: "functions that work on other tables are refused", guarantees: "G1 G4",
		edits: []edit{{
			file: "internal/dialect/statements/postgresql.sql",
			from: "to_regclass('postbox_waiting') THEN 'functions'",
			to:   "to_regclass('postbox_waiting') THEN ''",
		}},
		packages: []string{strings.TrimSuffix(module, "/")}, tests: "mends_functions",
	},
	{
		name: "the SQL of the migrations deletes its own rows alone", guarantees: "G2",
		edits: []edit{{
			file: "internal/dialect/migrations/postgresql/00001_postbox.sql",
			from: "DELETE FROM {messages} WHERE id < 0;",
			to:   "DELETE FROM {messages};",
		}},
		packages: []string{strings.TrimSuffix(module, "/")}, tests: "a_second_run_keeps",
	},
	{
		name: "the suspects of a batch are counted at once", guarantees: "G8",
		edits: []edit{{
			file: "internal/drain/starts.go",
			from: "slices.Chunk(suspects, maxSettle)",
			to:   "slices.Chunk(suspects, 1)",
		}},
		packages: []string{module + "internal/drain"}, tests: "batch_of_suspects",
	},
}
