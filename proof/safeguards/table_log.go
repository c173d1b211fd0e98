package main

// ofTheLog are those that let messages of the log go only after earlier ones of their keys.
var ofTheLog = []safeguard{
	{
		name: "a message of the log waits behind one of its key that waits", guarantees: "G3",
		edits: []edit{{
			file: "internal/drain/tail.go",
			from: "d.control.pausedKeys || t.waiting[m.KeyHash] || ",
			to:   "d.control.pausedKeys || ",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestTailing",
	},
	{
		name: "a message of the log waits behind one of its key that is left to polling", guarantees: "G3",
		edits: []edit{{
			file: "internal/drain/tail.go",
			from: " || t.left[m.KeyHash])\n",
			to:   ")\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestTailing",
	},
	{
		name: "nothing is taken from the log before a gap has ended", guarantees: "G3, F4",
		edits: []edit{{
			file: "internal/drain/tail.go",
			from: "if t.gap && w.final > t.gapMark && len(w.late.places) == 0 {",
			to:   "if t.gap && w.final >= 0 {",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestTailing",
	},
	{
		name: "nothing is taken from the log before it is visible", guarantees: "G1",
		edits: []edit{{
			file: "internal/drain/tail.go",
			from: "if !seen.Sees(m.Transaction) {",
			to:   "if t.read == nil {",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestTailing",
	},
	{
		name: "nothing is taken from the log behind a message in an old lane", guarantees: "G3",
		edits: []edit{{
			file: "internal/drain/tail.go",
			from: "return (l == nil || l.leaving) && d.layout.Has(m.Lane) || d.readSaw(m)",
			to:   "return l == nil || l.leaving || d.readSaw(m)",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestTailing",
	},
	{
		name: "the log is that of the server that is read", guarantees: "G1, G3",
		edits: []edit{{
			file: "internal/drain/tail.go",
			from: "if server != t.server || server != d.past.latest {",
			to:   "if server != d.past.latest {",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestTailing",
	},
	{
		name: "an idle drainer looks for messages that the log has not brought", guarantees: "G2",
		edits: []edit{{
			file: "internal/drain/idle.go",
			from: " && !seen.something && ",
			to:   " && ",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestIdle",
	},
	{
		name: "an idle drainer knows that a lease of its was lost", guarantees: "G6",
		edits: []edit{{
			file: "internal/drain/idle.go",
			from: "calm := seen.renewed == len(params.Held) && ",
			to:   "calm := ",
		}, {
			file: "internal/drain/idle.go",
			from: "if seen.renewed == len(params.Held) {",
			to:   "if seen.renewed >= 0 {",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestIdle",
	},
	{
		name: "messages of the log are reserved before they are published without rows", guarantees: "G2, F5",
		edits: []edit{{
			file: "tail/pgtail/outbox_reservation.go",
			from: "if last >= k.position.Reserved {",
			to:   "if last < 0 {",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G2_a_message_that_kills",
	},
	{
		name: "a message of the log that was reserved gets a row", guarantees: "G2, F5",
		edits: []edit{{
			file: "tail/pgtail/outbox_reservation.go",
			from: "return min(end, uint64(claimed.Reserved)), nil",
			to:   "return 0 * end, nil",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G2_a_message_that_kills|TestOutbox_G2_stores_what_a_process",
	},
	{
		name: "a process that was replaced reserves no messages of the log", guarantees: "G6",
		edits: []edit{{
			file: "tail/pgtail/outbox_reservation.go",
			from: "if n == 0 {",
			to:   "if n < 0 {",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G6_a_process_that_was_replaced",
	},
	{
		name: "a position that is stored keeps what an earlier process has reserved", guarantees: "G2",
		edits: []edit{{
			file: "tail/pgtail/outbox_reservation.go",
			from: "return max(int64(k.since), position+reserveAhead)",
			to:   "return position + reserveAhead",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G2_keeps_the_reservation",
	},
	{
		name: "a process that ends keeps what an earlier one has reserved", guarantees: "G2",
		edits: []edit{{
			file: "tail/pgtail/outbox_reservation.go",
			from: "exact := max(int64(k.since), k.position.Position)",
			to:   "exact := k.position.Position",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G2_keeps_the_reservation",
	},
	{
		name: "a process keeps its reservation if it could not store what it has published", guarantees: "G2",
		edits: []edit{{
			file: "tail/pgtail/outbox_reservation.go",
			from: "if k.begun || ",
			to:   "if ",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G2_publishes_again",
	},
	{
		name: "a process of an earlier version may have published any message of the log", guarantees: "G2",
		edits: []edit{{
			file: "internal/dialect/log_outbox.go",
			from: "CASE WHEN reserved_epoch = epoch THEN",
			to:   "CASE WHEN id = 1 THEN",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G2_stores_what_a_process",
	},
	{
		name: "the epochs of a log that was removed do not come again", guarantees: "G6",
		edits: []edit{{
			file: "internal/dialect/log_outbox.go",
			from: "SELECT 1, ?::text, ?::bigint, 0, n.now, n.now, ?::bigint, n.now FROM",
			to:   "SELECT 1, ?::text, ?::bigint, 0, 1, n.now, ?::bigint, 1 FROM",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestKeeper_G6",
	},
	{
		name: "a process whose database has moved to another server stores no position in the log", guarantees: "G2",
		edits: []edit{{
			file: "internal/dialect/log_outbox.go",
			from: "const ofTheServer = `? = ` + postgresStart",
			to:   "const ofTheServer = `? <> ''`",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestKeeper_G2",
	},
	{
		name: "a position in the log is confirmed after its messages are published or stored", guarantees: "G2",
		edits: []edit{{
			file: "tail/pgtail/outbox_stream.go",
			from: "		if !s.decoder.Within() {\n			s.intake.passedBy(end)\n",
			to:   "		s.confirmed = max(s.confirmed, end)\n		if !s.decoder.Within() {\n			s.intake.passedBy(end)\n",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G2_confirms_no_message_before",
	},
	{
		name: "a message of the log waits behind rows of its key", guarantees: "G3",
		edits: []edit{{
			file: "tail/pgtail/outbox_direct.go",
			from: "h.keys[*hash] = true",
			to:   "_ = *hash",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G3_a_row_that_is|TestOutbox_G3_a_failing",
	},
	{
		name: "a message of the log waits behind one of its key that the broker did not acknowledge", guarantees: "G3",
		edits: []edit{{
			file: "forwarder/direct.go",
			from: "if !r.publish(ctx, called, i) {",
			to:   "if !r.publish(ctx, called, i) && i < 0 {",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G3_holds_with_messages_that_fail",
	},
	{
		name: "a position in the log is confirmed when it is on the disk", guarantees: "G2",
		edits: []edit{{
			file: "tail/pgtail/outbox_keeper.go",
			from: "if k.savedBy != 0 && safe >= k.savedBy {",
			to:   "if k.savedBy != 0 && safe > 0 {",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestKeeper_G2_confirms",
	},
	{
		name: "a message of the log needs the publication of its slot", guarantees: "G1",
		edits: []edit{{
			file: "internal/dialect/log_emit.go",
			from: "return `(` + readsUnpublished + ` OR (",
			to:   "return `(TRUE OR (",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G1_loses_no_message_with",
	},
	{
		name: "the publication of the slot stays until transactions that have published have ended", guarantees: "G1",
		edits: []edit{{
			file: "internal/dialect/log_emit.go",
			from: "(pg_get_object_address('publication', ARRAY[` + name + `], ARRAY[]::text[])).objid ` + is + `)`",
			to:   "(SELECT e.oid FROM pg_publication e WHERE e.pubname = ` + name + `) ` + is + `)`",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G1_its_publication_stays",
	},
	{
		name: "a publication that was missing for a time is not trusted", guarantees: "G1",
		edits: []edit{{
			file: "internal/dialect/log_emit.go",
			from: " OR age(p.xmin) > age(s.catalog_xmin))`",
			to:   " OR age(p.xmin) >= 0 OR s.catalog_xmin IS NULL)`",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G1_loses_no_message_with",
	},
	{
		name: "nor is one that has changed since the transaction of the publisher began", guarantees: "G1",
		edits: []edit{{
			file: "internal/dialect/log_emit.go",
			from: " OR age(p.xmin) > age(s.catalog_xmin))`",
			to:   " OR age(p.xmin) NOT BETWEEN 0 AND age(s.catalog_xmin))`",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G1_a_transaction_trusts_no_later_publication",
	},
	{
		name: "nor is one that has taken the place of another one while the publisher waited", guarantees: "G1",
		edits: []edit{{
			file: "internal/dialect/log_emit.go",
			from: "keepsPublication(`s.slot_name::text`, `= p.oid`)",
			to:   "keepsPublication(`s.slot_name::text`, `IS NOT NULL`)",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G1_does_not_trust",
	},
	{
		name: "a slot that was seen is that of the tables that a transaction finds", guarantees: "G1",
		edits: []edit{{
			file: "internal/dialect/log_emit.go",
			from: "seenNow = `'{messages}'::regclass::oid::text || ' ' ||",
			to:   "seenNow = `' ' ||",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G1_looks_for_the_slot_of_the_tables",
	},
	{
		name: "a slot is not removed before open transactions have ended", guarantees: "G1",
		edits: []edit{{
			file: "tail/pgtail/outbox_remove.go",
			from: "if !a.slot.active { // otherwise it fails",
			to:   "if a.session == nil {",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestRemoveOutbox_G1_waits_for_transactions",
	},
	{
		name: "a set-up looks whether the log can be read before publishers go on", guarantees: "G1",
		edits: []edit{{
			file: "tail/pgtail/outbox_trust.go",
			from: "	if err := a.copyTried(ctx); err != nil {\n		return err\n	}\n",
			to:   "",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestOutbox_G1_loses_no_message_with",
	},
	{
		name: "a lost slot is not removed before the loss is accepted", guarantees: "G1",
		edits: []edit{{
			file: "tail/pgtail/outbox_remove.go",
			from: "if err := a.lost(); err != nil {",
			to:   "if err := a.lost(); err != nil && a.session == nil {",
		}},
		packages: []string{module + "tail/pgtail"}, tests: "TestRemoveOutbox_G1",
	},
}
