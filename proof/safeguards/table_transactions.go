package main

// ofTransactions are those of the functions that run in transactions: InTx, and the groups of SQLite that share a commit.
var ofTransactions = []safeguard{
	{
		name: "a savepoint for each turn in a group", guarantees: "G1",
		edits: []edit{{
			file: "forwarder/group.go",
			from: "			_ = g.exec(live, rollback) && g.exec(live, release)\n",
			to:   "			g.exec(live, release)\n",
		}},
		packages: []string{module + "forwarder"}, tests: "GroupCommit",
	},
	{
		name: "a shared commit that fails is no fault of all", guarantees: "G1",
		edits: []edit{{
			file: "forwarder/group.go",
			from: "return outcome{again: !committed}",
			to:   "return outcome{again: !committed && false}",
		}},
		packages: []string{module + "forwarder"}, tests: "GroupCommit",
	},
	{
		name: "a shared commit by a member is a commit", guarantees: "G1",
		edits: []edit{{
			file: "forwarder/group.go",
			from: "return outcome{again: !committed}",
			to:   "return outcome{again: true || committed}",
		}},
		packages: []string{module + "forwarder"}, tests: "GroupCommit",
	},
	{
		name: "InTx looks whether its transaction is still there", guarantees: "G1",
		edits: []edit{{
			file: "forwarder/intx.go",
			from: "err = spool.Intact(ctx, conn, tx)",
			to:   "err = nil",
		}},
		packages: []string{module + "forwarder"}, tests: "InTx",
	},
	{
		name: "a broken group is rolled back before it is asked", guarantees: "G1",
		edits: []edit{{
			file: "forwarder/group.go",
			from: "		_, _ = g.tx.ExecContext(ctx, \"ROLLBACK\")",
			to:   "		_, _ = g.tx.ExecContext(ctx, \"SELECT 1\")",
		}},
		packages: []string{module + "forwarder"}, tests: "GroupCommit",
	},
	{
		name: "one function at a time in a savepoint", guarantees: "G1",
		edits: []edit{{
			file: "internal/txscope/txscope.go",
			from: "	if s.inner {\n",
			to:   "	if s.inner && s.Tx == nil {\n",
		}},
		packages: []string{module + "forwarder"}, tests: "InTx",
	},
	{
		name: "a scope ends with its function", guarantees: "G1",
		edits: []edit{{
			file: "internal/txscope/txscope.go",
			from: "	s.state.CompareAndSwap(open, returned)\n",
			to:   "	s.state.CompareAndSwap(open, open)\n",
		}},
		packages: []string{module + "forwarder"}, tests: "InTx|GroupCommit",
	},
	{
		name: "a function that returns too early rolls back", guarantees: "G1 G4",
		edits: []edit{{
			file: "internal/txscope/txscope.go",
			from: "	s.outlived = s.outlived || s.inner || s.calls > 0\n",
			to:   "	s.outlived = s.outlived && (s.inner || s.calls > 0)\n",
		}},
		packages: []string{module + "forwarder", module + "inboxstore"}, tests: "InTx|GroupCommit|TestStore_G4",
	},
	{
		name: "a function that returns too early ends the whole transaction", guarantees: "G1",
		edits: []edit{{
			file: "internal/txscope/txscope.go",
			from: "		_ = s.Tx.Rollback() // that it has ended is as good\n",
			to:   "",
		}},
		packages: []string{module + "forwarder"}, tests: "InTx|GroupCommit",
	},
	{
		name: "a publisher writes to no other database", guarantees: "G1",
		edits: []edit{{
			file: "internal/spool/place.go",
			from: "	if err == nil && own != there {\n",
			to:   "	if err == nil && own == \"\" {\n",
		}},
		packages: []string{module + "forwarder", module + "inboxstore"}, tests: "another_database",
	},
	{
		name: "a transaction of another database is left alone", guarantees: "G1",
		edits: []edit{{
			file: "forwarder/within.go",
			from: "	if !found || spool.BeganElsewhere(tx, db) {",
			to:   "	if !found || ctx == nil && spool.BeganElsewhere(tx, db) {",
		}},
		packages: []string{module + "forwarder"}, tests: "InTx",
	},
	{
		name: "a committed transaction is left alone", guarantees: "G1",
		edits: []edit{{
			file: "internal/txscope/txscope.go",
			from: "		s.state.Store(committed)",
			to:   "		s.state.Store(returned)",
		}},
		packages: []string{module + "forwarder"}, tests: "InTx",
	},
}
