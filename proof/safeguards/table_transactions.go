package main

// ofTransactions are those of the functions that run in transactions: InTx.
var ofTransactions = []safeguard{
	{
		name: "InTx looks whether its transaction is still there", guarantees: "G1",
		edits: []edit{{
			file: "intx.go",
			from: "err = commit.Intact(ctx, conn, tx)",
			to:   "err = nil",
		}},
		packages: []string{module + "forwarder"}, tests: "InTx",
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
		packages: []string{module + "forwarder"}, tests: "InTx",
	},
	{
		name: "a function that returns too early rolls back", guarantees: "G1 G4",
		edits: []edit{{
			file: "internal/txscope/txscope.go",
			from: "	s.outlived = s.outlived || s.inner || s.calls > 0\n",
			to:   "	s.outlived = s.outlived && (s.inner || s.calls > 0)\n",
		}},
		packages: []string{module + "forwarder", module + "inboxstore"}, tests: "InTx|TestStore_G4",
	},
	{
		name: "a function that returns too early ends the whole transaction", guarantees: "G1",
		edits: []edit{{
			file: "internal/txscope/txscope.go",
			from: "		_ = s.Tx.Rollback() // that it has ended is as good\n",
			to:   "",
		}},
		packages: []string{module + "forwarder"}, tests: "InTx",
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
			file: "within.go",
			from: "	if !found || commit.BeganElsewhere(tx, db) {",
			to:   "	if !found || ctx == nil && commit.BeganElsewhere(tx, db) {",
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
