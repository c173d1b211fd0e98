package main

// ofTheInbox are those around the handlers of an inbox and of its queues.
var ofTheInbox = []safeguard{
	{
		name: "claim first", guarantees: "G4, F6",
		edits: []edit{{
			file: "inboxstore/once.go",
			from: `inbox.Work{Begin: begin, Handle`,
			to:   `inbox.Work{Settle: begin, Handle`,
		}},
		packages: []string{module + "inboxstore", module + "middleware"}, tests: "TestInbox|TestStore_.*(F2|F6|handles_a_message_once)",
	},
	{
		name: "claim commits with the effect", guarantees: "G4, F2",
		edits: []edit{{
			file: "inboxstore/once.go",
			from: `	begin := func(ctx context.Context, tx *sql.Tx) error {
		claimed, err := s.exec(ctx, tx, s.core.Statements.Claim, claim)
`,
			to: `	claimed := int64(0)
	result, err := s.core.DB.ExecContext(ctx, s.core.Statements.Claim, claim)
	if err == nil {
		claimed, err = result.RowsAffected()
	}
	begin := func(context.Context, *sql.Tx) error {
`,
		}},
		packages: []string{module + "inboxstore"}, tests: "TestStore_.*(F2|F6|handles_a_message_once)",
	},
	{
		name: "a failed handler never commits", guarantees: "G4",
		edits: []edit{
			{
				file: "internal/inbox/transact.go",
				from: "		err = scope.Failure()\n",
				to:   "		_ = scope.Failure()\n",
			},
			{file: "queue/delivery.go", from: "		return txscope.From(inner).Failure()\n", to: "		_ = txscope.From(inner)\n		return nil\n"},
		},
		packages: []string{module + "middleware", module + "router"}, tests: "TestGuard|error_eaters",
	},
	{
		name: "the router guards its handlers", guarantees: "G4",
		edits: []edit{{
			file: "router/router.go",
			from: "	handler = middleware.Guard(handler)\n",
			to:   "",
		}},
		packages: []string{module + "router"}, tests: "error_eaters",
	},
	{
		name: "the deadline of a delivery is the handler's", guarantees: "G7, F29",
		edits: []edit{{
			file: "middleware/inbox.go",
			from: "return errors.Is(ctx.Err(), context.Canceled) }",
			to:   "return ctx.Err() != nil }",
		}},
		packages: []string{module + "middleware"}, tests: "deadline_of_the_delivery",
	},
	{
		name: "the records of failures have an isolation of their own", guarantees: "G7",
		edits: []edit{{
			file: "internal/dialect/postgres.go",
			from: "	s.Isolation = sql.LevelReadCommitted\n",
			to:   "	s.Isolation = sql.LevelDefault\n",
		}},
		packages: []string{module + "inboxstore"}, tests: "counts_failures_at_any",
	},
	{
		name: "a connection that is lost at the commit is the handler's", guarantees: "G7, F29",
		edits: []edit{{
			file: "internal/inbox/transact.go",
			from: "	case dialect.TxStatusOf(t.conn) == dialect.TxLost: //",
			to:   "	case dialect.TxStatusOf(t.conn) == dialect.TxLost && false: //",
		}},
		packages: []string{module + "internal/inbox"}, tests: "TestInbox_G7_a_handler_that_loses",
	},
	{
		name: "the handler's transaction is asked after", guarantees: "G4, G7",
		edits: []edit{{
			file: "internal/inbox/transact.go",
			from: "	switch dialect.TxStatusOf(t.conn) {\n",
			to:   "	if err := error(nil); err == nil {\n		return nil\n	}\n	switch dialect.TxStatusOf(t.conn) {\n",
		}},
		packages: []string{module + "internal/inbox"}, tests: "TestQueue_G7_a_handler_that_loses",
	},
	{
		name: "failure record of its own", guarantees: "G4, F14",
		edits: []edit{
			{file: "middleware/inbox.go", from: "	before, came := msg", to: "	recorded := 0\n	before, came := msg"},
			{
				file: "middleware/inbox.go",
				from: "		return emitter{i.config.Outbox, i.config.PublishTopic, i.config.ReceiptTopic}.handle(ctx, msg, h, confirmed)\n",
				to: `		err := emitter{i.config.Outbox, i.config.PublishTopic, i.config.ReceiptTopic}.handle(ctx, msg, h, confirmed)
		if err != nil {
			recorded, _ = i.store.RecordFailure(ctx, key, err)
		}
		return err
`,
			},
			{file: "middleware/inbox.go", from: "i.failed(ctx, key, came, failure.Err)", to: "i.failed(ctx, key, came, failure.Err, recorded)"},
			{
				file: "middleware/inbox.go",
				from: "came delivered, cause error) (attempts int, err error) {",
				to:   "came delivered, cause error, counted int) (attempts int, err error) {",
			},
			{
				file: "middleware/inbox.go",
				from: "	attempts, err = i.store.RecordFailure(ctx, key, cause)\n	if err != nil {\n		return 0, errors.Join(cause, err)\n	}\n",
				to:   "	attempts = counted\n",
			},
		},
		packages: []string{module + "middleware"}, tests: "Inbox",
	},
	{
		name: "no receipt of a handler that failed", guarantees: "G4",
		edits: []edit{{
			file: "middleware/emitter.go", from: "	if err == nil && confirms {\n", to: "	if confirms {\n",
		}},
		packages: []string{module + "middleware"}, tests: "Inbox_G4_a_receipt",
	},
	{
		name: "stored before acked", guarantees: "G5",
		edits: []edit{{
			file: "middleware/defer.go",
			from: "		_, err = d.store.Defer(ctx, d.queue, key, stored)\n",
			to:   "		go func() { _, _ = d.store.Defer(ctx, d.queue, key, stored) }()\n",
		}},
		packages: []string{module + "middleware"}, tests: "Defer",
	},
	{
		name: "the cache of claims asks the database", guarantees: "G4, F27",
		edits: []edit{{
			file: "inboxstore/remembered.go",
			from: "	return err == nil\n}\n\nfunc (s *Store) findClaim",
			to:   "	return true\n}\n\nfunc (s *Store) findClaim",
		}},
		packages: []string{module + "inboxstore"}, tests: "cache",
	},
	{
		name: "a handler's own read-only transaction is no outage", guarantees: "G7",
		edits: []edit{{
			file: "internal/inbox/blame.go",
			from: "	if c.Statements.Kind.Classify(tryErr) == dialect.Unavailable {\n",
			to:   "	if c.Statements.Kind.Classify(tryErr) == dialect.Unavailable || tryErr == nil {\n",
		}},
		packages: []string{module + "internal/inbox"}, tests: "made_read_only",
	},
	{
		name: "a full disk is open until another message gets through", guarantees: "G7",
		edits: []edit{{
			file: "internal/inbox/blame.go",
			from: "Exhausted: c.Statements.Kind.Exhausted(broken.err)}",
			to:   "Exhausted: c.Statements.Kind.Exhausted(broken.err) && false}",
		}},
		packages: []string{module + "queue"}, tests: "a_full_disk_counts",
	},
	{
		name: "SQLite ends a transaction by itself on a full disk", guarantees: "G7",
		edits: []edit{{
			file: "internal/inbox/transact.go",
			from: "	return !kind.Can().RollsBackWhenFull || !kind.Exhausted(err)\n",
			to:   "	return !kind.Can().RollsBackWhenFull || !kind.Exhausted(err) || true\n",
		}},
		packages: []string{module + "internal/inbox"}, tests: "TestStore_G7_a_full_SQLite_file",
	},
	{
		name: "a connection that a failed handler left unable to write is given up", guarantees: "G3, G7",
		edits: []edit{{
			file: "internal/inbox/transact.go",
			from: "		if handled {\n",
			to:   "		if handled && false {\n",
		}},
		packages: []string{module + "internal/inbox"}, tests: "TestStore_G3_a_handler_that_fails",
	},
	{
		name: "a message that the server refuses to remove rests", guarantees: "G3, G7",
		edits: []edit{{
			file: "internal/inbox/blame.go",
			from: "		return RefusalError{fmt.Errorf(",
			to:   "		return OutageError{fmt.Errorf(",
		}},
		packages: []string{module + "queue"}, tests: "TestQueue_G3_a_message_that_cannot_be_settled/single/./an_error",
	},
	{
		name: "an error that panics is replaced", guarantees: "G6, G7",
		edits:    []edit{{file: "internal/spool/protect.go", from: "_, _ = err.Error(), errors.Is(err, errNone)", to: "_, _ = err, errNone"}},
		packages: []string{module + "middleware"}, tests: "an_error_that_panics",
	},
	{
		name: "a dead letter that PoisonOutbox refuses concerns its key alone", guarantees: "G3, G7",
		edits:    []edit{{file: "internal/drain/setback.go", from: "errors.As(err, &ofHook) ||", to: "errors.As(err, &ofHook) && false ||"}},
		packages: []string{module + "queue"}, tests: "PoisonOutbox_refuses/./panic",
	},
	{
		name: "the database is asked whose fault a lost connection is", guarantees: "G7, F29",
		edits: []edit{{
			file: "internal/inbox/blame.go",
			from: "	if err := database.there(ctx); err != nil {\n",
			to:   "	if err := database.there(ctx); err != nil || live != nil {\n",
		}},
		packages: []string{module + "internal/inbox", module + "queue"}, tests: "a_handler_that_loses|handler_timeout_in",
	},
	{
		name: "the database is asked once for a batch", guarantees: "G7, F29",
		edits: []edit{{
			file: "internal/inbox/blame.go",
			from: "	if i.thereAnswer == nil {\n",
			to:   "	if i.thereAnswer == nil || ctx != nil {\n",
		}},
		packages: []string{module + "queue"}, tests: "TestBatch_G7_asks_the_database_once",
	},
	{
		name: "a conflict is nobody's fault", guarantees: "G7, F29",
		edits: []edit{{
			file: "internal/inbox/conflict.go",
			from: "c.Statements.Kind.Classify(err) == dialect.Conflict\n",
			to:   "c.Statements.Kind.Classify(err) == dialect.Conflict && false\n",
		}},
		packages: []string{module + "internal/inbox", module + "inboxstore", module + "queue"}, tests: "onflict",
	},
	{
		name: "handlers leave one connection to the engine", guarantees: "G6, F33",
		edits: []edit{{
			file: "internal/inbox/slots.go",
			from: "	return connections - 1\n",
			to:   "	return connections\n",
		}},
		packages: []string{module + "queue"}, tests: "leases_are_renewed_while",
	},
	{
		name: "a handler's transaction gives up a locked row", guarantees: "G3, G4",
		edits: []edit{{
			file: "internal/inbox/transact.go",
			from: "func() { giveUp(spool.ErrRowLocked) })\n",
			to:   "func() {})\n",
		}},
		packages: []string{module + "queue"}, tests: "locked_row_holds_up",
	},
	{
		name: "a batch goes on without the message whose row is locked", guarantees: "G3, G4",
		edits: []edit{{
			file: "queue/queue.go",
			from: "	case errors.Is(err, spool.ErrRowLocked) && len(messages) > 1:\n",
			to:   "	case errors.Is(err, spool.ErrRowLocked) && len(messages) < 1:\n",
		}},
		packages: []string{module + "queue"}, tests: "locked_row_holds_up_no_other_message",
	},
	{
		name: "the stores of a pool share its connections", guarantees: "G6, F33",
		edits: []edit{{
			file: "internal/inbox/slots.go",
			from: "	pool := weak.Make(db)\n",
			to:   "	pool := weak.Make(new(sql.DB))\n",
		}},
		packages: []string{module + "queue"}, tests: "leases_are_renewed_while",
	},
	{
		name: "a handler with the only connection holds its lane", guarantees: "G6, G10, F33",
		edits: []edit{{
			file: "queue/delivery.go",
			from: "	if q.core.Slots.Alone() {\n",
			to:   "	if q.core.Slots.Alone() && len(batch) == 0 {\n",
		}},
		packages: []string{module + "queue"}, tests: "handler_with_the_only_connection",
	},
	{
		name: "a stop does not wait for OnDead for ever", guarantees: "G12",
		edits: []edit{{
			file: "queue/dead.go",
			from: "	case <-q.live.Done():\n",
			to:   "	case <-(chan struct{})(nil):\n",
		}},
		packages: []string{module + "queue"}, tests: "an_OnDead_that_never_returns",
	},
	{
		name: "no part of a batch is handled after the close timeout", guarantees: "G12",
		edits: []edit{{
			file: "queue/bisection.go",
			from: "	if ctx.Err() == nil {\n		if call",
			to:   "	if true {\n		if call",
		}},
		packages: []string{module + "queue"}, tests: "TestBatch_G12",
	},
}
