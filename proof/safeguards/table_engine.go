package main

// ofTheEngine are those of the spool, of its statements, and of what uses it.
var ofTheEngine = []safeguard{
	{
		name: "late-row search", guarantees: "G3, F4",
		edits: []edit{
			{file: "internal/drain/watermark.go", from: "	return h.safe\n", to: "	return h.newest\n"},
			{file: "internal/drain/sweep.go", from: "return !now.Before(s.next) }", to: "return false && now.IsZero() }"},
		},
		packages: []string{module + "internal/drain"}, tests: "late_committer|Watermark|Model_G3_on_(PostgreSQL|MariaDB)",
	},
	{
		name: "outage is no failure", guarantees: "G7, F13",
		edits: []edit{{
			file: "forwarder/relay.go",
			from: "		return spool.Outcome{Verdict: spool.Postpone, Err: err}\n	case postbox.MessageFault:",
			to:   "		return drain.OutcomeOf(err)\n	case postbox.MessageFault:",
		}},
		packages: []string{module + "forwarder"}, tests: "G7",
	},
	{
		name: "a failed message holds back its key", guarantees: "G3",
		edits: []edit{{
			file: "internal/schedule/finish.go",
			from: "if !e.Outcome.Through() || e.dropped || e.Message.Ref.State == dialect.StateRetrying {",
			to:   "if e.dropped || e.Message.Ref.State > dialect.StateRetrying {",
		}},
		packages: []string{module + "internal/drain"}, tests: "Drainer_.*(G3|head|broken_row_with|unordered_messages.*pass)|Model",
	},
	{
		name: "a read of uncommitted data is thrown away", guarantees: "G1",
		edits: []edit{{
			file: "internal/drain/fetch.go",
			from: "return found, r.checkSession(ctx, found.unfit)",
			to:   "return found, nil",
		}},
		packages: []string{module + "forwarder"}, tests: "TestForwarder_G1_refuses",
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
			file: "internal/schedule/scheduler.go",
			from: "		if s.leaseOver() {\n			s.Signal()",
			to:   "		if false && s.leaseOver() {\n			s.Signal()",
		}},
		packages: []string{module + "internal/schedule", module + "internal/drain"}, tests: "G6|F10|leases_are_lost|TestRemoval_G4|TestSettlement_G3|Scheduler|Model",
	},
	{
		name: "a row is named by its id and its time", guarantees: "G2, F27",
		edits: []edit{
			{
				file:  "internal/dialect/statements/postgresql.sql",
				from:  "AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at",
				to:    "AND m.id BETWEEN s.id AND s.id",
				every: true,
			},
			{
				file: "internal/dialect/statements/sqlite.sql",
				from: "AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3)\n-- if seen",
				to:   "AND m.lane = s.value ->> 0)\n-- if seen",
			},
		},
		packages: []string{module + "internal/drain"}, tests: "Guards_spare|goes_back",
	},
	{
		name: "messages that wait for limits make room for others", guarantees: "G8",
		edits: []edit{{
			file: "internal/drain/leftout.go",
			from: "	if _, full := r.room(); !full {\n",
			to:   "	if _, full := r.room(); full || !full {\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "many_limited_topics",
	},
	{
		name: "parts of a failed batch count for the limits", guarantees: "G8",
		edits: []edit{{
			file: "queue/progress.go",
			from: "	if first ||",
			to:   "	if first || q != nil ||",
		}},
		packages: []string{module + "queue"}, tests: "parts_of_a_batch",
	},
	{
		name: "a database that goes back is noticed", guarantees: "G3, F27",
		edits: []edit{{
			file: "internal/drain/poll.go",
			from: "found, time.Now()); reason != \"\" {",
			to:   "found, time.Now()); reason == \"never\" {",
		}},
		packages: []string{module + "internal/drain"}, tests: "goes_back|older_token",
	},
	{
		name: "lanes go back when a late transaction ends", guarantees: "G3, F31",
		edits: []edit{{
			file: "internal/drain/late.go",
			from: "	if !some {\n",
			to:   "	if !some || place >= 0 {\n",
		}},
		packages: []string{module + "internal/schedule", module + "internal/drain"}, tests: "Late|late|transactions_that_end|Model",
	},
	{
		name: "on MariaDB a mark waits until all rows of the writers were free", guarantees: "G3, F4",
		edits: []edit{{
			file: "internal/drain/watermark.go",
			from: "	if len(h.free) == groups {\n",
			to:   "	if len(h.free) <= groups {\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "transactions_that_end|mariadb",
	},
	{
		name: "a new channel after RabbitMQ has rejected", guarantees: "G2, F13",
		edits: []edit{{
			file: "brokers/amqpbroker/sender.go",
			from: "	s.spent = refused > 0\n",
			to:   "	s.spent = false\n",
		}},
		packages: []string{module + "brokers/amqpbroker"}, tests: "TestChannelIsReplaced",
	},
	{
		name: "nothing handed out of an ended subscription", guarantees: "G4, F13",
		edits: []edit{{
			file: "brokers/amqpbroker/marshaler.go",
			from: "		return nil, errEnded\n",
			to:   "		return message.NewMessage(\"\", nil), nil\n",
		}},
		packages: []string{module + "brokers/amqpbroker"}, tests: "TestZeroDelivery",
	},
	{
		name: "done in the lost database is not done in the new one", guarantees: "G2, G4, F27",
		edits: []edit{{
			file: "internal/drain/restored.go",
			from: "	if !s.config.Local {\n",
			to:   "	if s.config.Local {\n",
		}},
		packages: []string{module + "proof/pipeline"}, tests: "finished_only_in_the_lost",
	},
	{
		name: "a removal that outlives its database is not tried again in the next", guarantees: "G2, G4, F27",
		edits: []edit{{
			file: "internal/drain/parts.go",
			from: "	for _, e := range part {\n		s.revoke(e)\n	}\n	s.unsettled",
			to:   "	s.unsettled",
		}},
		packages: []string{module + "internal/drain"}, tests: "removal_that_outlives",
	},
	{
		name: "a copy of the database sends nothing", guarantees: "G2, F28",
		edits: []edit{{
			file: "internal/dialect/deployment.go",
			from: "	case configured:\n",
			to:   "	case configured, \"production\":\n",
		}},
		packages: []string{module + "proof/security"}, tests: "Deployment",
	},
	{
		name: "plans depend on no statistics", guarantees: "G8",
		edits: []edit{{
			file:  "admin/internal/operatorsql/statements/postgresql.sql",
			from:  "LIMIT (SELECT :limit::bigint)",
			to:    "LIMIT :limit::bigint",
			every: true,
		}, {
			file:  "admin/internal/operatorsql/statements/postgresql.sql",
			from:  "LIMIT (SELECT :among::bigint)",
			to:    "LIMIT :among::bigint",
			every: true,
		}, {
			file:  "admin/internal/operatorsql/statements/postgresql.sql",
			from:  "d.id > (SELECT :after::bigint) AND d.id <= (SELECT :up_to::bigint)",
			to:    "d.id > :after::bigint AND d.id <= :up_to::bigint",
			every: true,
		}},
		packages: []string{module + "admin"}, tests: "G8",
	},
	{
		name: "a removal never reads the whole table", guarantees: "G8",
		edits: []edit{{
			file: "internal/dialect/migrations/postgresql/00001_postbox.sql",
			from: "SET enable_seqscan = off SET enable_bitmapscan = off SET jit",
			to:   "SET jit",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestPlans_of_a_removal",
	},
	{
		name: "a start that came back is taken back", guarantees: "G7, F33",
		edits: []edit{
			{
				file: "internal/drain/removal.go",
				from: "	locked, err := s.takeBackStarts(ctx, unlocked(entries, left.locked))\n",
				to:   "	locked, err := s.takeBackStarts(ctx, nil)\n",
			},
			{
				file: "internal/drain/parts.go",
				from: "			return takeBack\n",
				to:   "			return nothing\n",
			},
		},
		packages: []string{module + "internal/drain"}, tests: "Starts|Model|F5|all_suspects|crashes_its_process",
	},
	{
		name: "a key that reads left out is read from its beginning", guarantees: "G3, F4",
		edits: []edit{{
			file: "internal/drain/conclude.go",
			from: "s.lanes.lower(ref.Lane, 1)",
			to:   "s.lanes.lower(ref.Lane, ref.ID)",
		}},
		packages: []string{module + "internal/drain"}, tests: "late_committer_of_a_key",
	},
	{
		name: "a key stays closed while one of its messages rests", guarantees: "G3",
		edits: []edit{{
			file: "internal/schedule/finish.go",
			from: "e.queue.closedBy--; e.queue.closedBy == 0 {",
			to:   "e.queue.closedBy--; e.queue.closedBy >= 0 {",
		}},
		packages: []string{module + "internal/schedule"}, tests: "TestScheduler_G3_a_key_stays_closed",
	},
	{
		name: "a process that stood still hands out nothing of before", guarantees: "G6, F37",
		edits: []edit{{
			file: "internal/schedule/clock.go",
			from: "	return !now.Add(s.StoodStill(s.deadline.ahead, now)).Before(s.deadline.at)\n",
			to:   "	return !now.Before(s.deadline.at)\n",
		}},
		packages: []string{module + "internal/schedule", module + "internal/drain"}, tests: "stood_still",
	},
	{
		name: "what is overdue is let in slowly", guarantees: "G8, F30",
		edits: []edit{{
			file: "internal/schedule/slowstart.go",
			from: "	return min(wanted, s.remaining)\n",
			to:   "	return wanted\n",
		}},
		packages: []string{module + "internal/schedule", module + "internal/drain"}, tests: "overdue|SlowStart",
	},
	{
		name: "payloads in flight are bounded in bytes", guarantees: "G8",
		edits: []edit{{
			file: "internal/schedule/payloads.go",
			from: "	return bytes == 0 || p.most == 0",
			to:   "	return bytes >= 0 || p.most == 0",
		}},
		packages: []string{module + "internal/schedule", module + "internal/drain"}, tests: "Room|bytes_in_flight",
	},
	{
		name: "a key waits for the dead letter of its head", guarantees: "G3",
		edits: []edit{{
			file: "forwarder/relay.go",
			from: "		if outcomes[i].Verdict != spool.Done {\n			held.Close(m)\n",
			to:   "		if outcomes[i].Verdict == spool.Retry {\n			held.Close(m)\n",
		}},
		packages: []string{module + "forwarder"}, tests: "TestForwarder_G3|poison",
	},
	{
		name: "a drainer that stops has no share of the lanes", guarantees: "G12",
		edits: []edit{{
			file: "internal/drain/lease.go",
			from: "	case le.stopping:\n",
			to:   "	case le.stopping && le.members < 0:\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "G12_a_handler_that_never_returns|G12_hands_back_idle_lanes",
	},
	{
		name: "a stop does not wait for handlers for ever", guarantees: "G12",
		edits: []edit{{
			file: "internal/drain/drainer_stop.go",
			from: "		case <-patience.Done():\n			d.tellOfHandlersLeft()\n			return\n",
			to:   "",
		}},
		packages: []string{module + "internal/drain"}, tests: "G12_a_handler_that_never_returns|G12_hands_back_idle_lanes",
	},
	{
		name: "a stop tries again to record the outcome of a locked row", guarantees: "G2, G12",
		edits: []edit{{
			file: "internal/drain/drainer_stop.go",
			from: "	for goesOn && unrecorded(",
			to:   "	for goesOn && !d.lease.stopping && unrecorded(",
		}},
		packages: []string{module + "internal/drain"}, tests: "G12_records_the_outcome",
	},
	{
		name: "a stop tries again to record an outcome after an outage of the database", guarantees: "G2, G12",
		edits: []edit{{
			file: "internal/drain/drainer_stop.go",
			from: "	case d.forGood(err) || ",
			to:   "	case d.lease.stopping || ",
		}},
		packages: []string{module + "internal/drain"}, tests: "G12_records_an_outcome_after_an_outage",
	},
	{
		name: "a lane whose message is done and cannot be removed is not handed back", guarantees: "G2",
		edits: []edit{{
			file: "internal/drain/locked.go",
			from: "		if e.Locked || mustBeStored(e.Outcome.Verdict) {\n			lanes",
			to:   "		if e.Locked {\n			lanes",
		}},
		packages: []string{module + "internal/drain"}, tests: "G2_hands_back_a_lane_with_a_refused",
	},
	{
		name: "a lane in which a handler still runs is not handed back", guarantees: "G6, G12",
		edits: []edit{{
			file: "internal/drain/drainer_stop.go",
			from: "		if !running[number] {\n",
			to:   "		if !running[number] || d.lease.stopping {\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "G12_a_handler_that_never_returns|G12_hands_back_idle_lanes",
	},
	{
		name: "nothing is published after the close timeout", guarantees: "G12",
		edits: []edit{{
			file: "forwarder/relay.go",
			from: "	if err := ctx.Err(); err != nil {\n		return err\n	}\n	messages := ",
			to:   "	messages := ",
		}, {
			file: "forwarder/relay.go",
			from: "r.reload(ctx, m)",
			to:   "r.reload(context.WithoutCancel(ctx), m)",
		}},
		packages: []string{module + "forwarder"}, tests: "G12",
	},
}
