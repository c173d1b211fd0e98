package main

// ofOutages are those that tell an outage from a failure.
var ofOutages = []safeguard{
	{
		name: "an unknown failure needs a sign of life", guarantees: "G7, F30",
		edits: []edit{{
			file: "internal/circuit/blame.go",
			from: "	case b.life <= f.at:\n",
			to:   "	case b.life < 0:\n",
		}},
		packages: []string{module + "internal/circuit", module + "internal/drain"}, tests: "Blame|Model",
	},
	{
		name: "a conflict counts no attempt", guarantees: "G7",
		edits: []edit{{
			file: "internal/drain/fate.go",
			from: "	if e.Outcome.Verdict == spool.Wait || e.Outcome.Verdict == spool.Again {\n",
			to:   "	if e.Outcome.Verdict == spool.Wait {\n",
		}},
		packages: []string{module + "internal/schedule", module + "internal/drain"}, tests: "Model|setback|lasting_conflict",
	},
	{
		name: "a first unknown failure counts for nothing", guarantees: "G7, F30",
		edits: []edit{{
			file: "internal/circuit/blame.go",
			from: "	case f == nil:\n		return false\n",
			to:   "	case f == nil:\n		return true\n",
		}},
		packages: []string{module + "internal/circuit", module + "internal/drain"}, tests: "Blame|Model",
	},
	{
		name: "poison comes to its end where others get through", guarantees: "G3, F30",
		edits: []edit{{
			file: "internal/circuit/blame.go",
			from: "	counts := before.atFault(b, now) || now.Sub(b.quietSince) >= c.config.OutageLimit\n",
			to:   "	counts := now.Sub(b.quietSince) >= c.config.OutageLimit\n",
		}},
		packages: []string{module + "internal/circuit", module + "internal/drain"}, tests: "Blame|Model",
	},
	{
		name: "an outage has a limit", guarantees: "G3, F30",
		edits: []edit{{
			file: "internal/circuit/blame.go",
			from: "	counts := before.atFault(b, now) || now.Sub(b.quietSince) >= c.config.OutageLimit\n",
			to:   "	counts := before.atFault(b, now)\n",
		}},
		packages: []string{module + "internal/circuit", module + "internal/drain"}, tests: "Blame|Model",
	},
	{
		name: "time for the last part of a destination to come back", guarantees: "G7, F30",
		edits: []edit{{
			file: "internal/circuit/blame.go",
			from: "	return now.Sub(b.proved) >= recovery || now.Sub(f.aloneSince) >= recovery\n",
			to:   "	return now.Sub(b.proved) >= 0\n",
		}},
		packages: []string{module + "internal/circuit"}, tests: "Blame",
	},
	{
		name: "a proved outage is remembered without failed messages", guarantees: "G7, F30",
		edits: []edit{{
			file: "internal/circuit/circuit.go",
			from: "	left := recovery - c.config.Now().Sub(state.blame.proved)\n",
			to:   "	left := min(recovery-c.config.Now().Sub(state.blame.proved), 0)\n",
		}},
		packages: []string{module + "internal/circuit"}, tests: "Blame",
	},
	{
		name: "probes of unknown failures take turns", guarantees: "G3, F30",
		edits: []edit{{
			file: "forwarder/relay.go",
			from: "	return spool.Outcome{Verdict: spool.Wait, Err: failed.Err, After: blame",
			to:   "	return spool.Outcome{Verdict: spool.Postpone, Err: failed.Err, After: blame",
		}},
		packages: []string{module + "forwarder"}, tests: "take_turns",
	},
	{
		name: "a message with an attempt is no evidence of an outage", guarantees: "G3, F30",
		edits: []edit{{
			file: "internal/circuit/blame.go",
			from: "	if state.open || evident && b",
			to:   "	if state.open || b",
		}},
		packages: []string{module + "internal/circuit"}, tests: "TestCircuits",
	},
	{
		name: "a setback is followed by a longer pause each time", guarantees: "G7",
		edits: []edit{{
			file: "internal/drain/setback.go",
			from: "min(setbackPause<<doublings, setbackMost)",
			to:   "min(setbackPause, setbackMost)",
		}},
		packages: []string{module + "internal/schedule", module + "internal/drain"}, tests: "etback",
	},
	{
		name: "a file that was replaced ends its drainer", guarantees: "G2, F27",
		edits: []edit{{
			file: "internal/drain/restored.go",
			from: "	if err != nil || !os.SameFile(p.file, now) {\n",
			to:   "	if err != nil || now == nil {\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "moved_away_or_replaced",
	},
	{
		name: "a sweep that fails is tried again later", guarantees: "G8",
		edits: []edit{{
			file: "internal/drain/sweep.go",
			from: "	s.next = now.Add(s.pause)\n}",
			to:   "	s.next = now\n}",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestSweep_that_fails",
	},
	{
		name: "the watermark passes transactions that have not written", guarantees: "G3, F31",
		edits: []edit{{
			file: "internal/drain/watermark.go",
			from: "		unrelated := h.writers != nil && !h",
			to:   "		unrelated := h.writers != nil && len(h.writers) < 0 && !h",
		}},
		packages: []string{module + "internal/drain"}, tests: "Watermark",
	},
	{
		name: "a probe that tells nothing makes room for another", guarantees: "G7, F13",
		edits: []edit{{
			file: "internal/circuit/circuit.go",
			from: "	replace := state != nil && state.runs(call)\n",
			to:   "	replace := state != nil && state.runs(call) && topic == \"\"\n",
		}},
		packages: []string{module + "internal/circuit", module + "forwarder", module + "queue"}, tests: "Circuits|a_probe_without|a_probe_whose",
	},
	{
		name: "a panic of Classify blames one message alone", guarantees: "G7",
		edits: []edit{{
			file: "internal/spool/protect.go",
			from: "Recovered(func() error { class = classify(err); return nil });",
			to:   "func() error { class = classify(err); return nil }();",
		}},
		packages: []string{module + "forwarder", module + "queue"}, tests: "blames_no_other_message",
	},
	{
		name: "codes are believed of the driver's own types alone", guarantees: "G7, F8",
		edits: []edit{{
			file: "internal/dialect/driver_errors.go",
			from: "	knownTypes.Store(t, found)\n",
			to: `	if _, coded := reflect.Zero(t).Interface().(interface{ Code() int }); coded && found == nil {
		found = &driverError{SQLite, readCode}
	}
	knownTypes.Store(t, found)
`,
		}},
		packages: []string{module + "internal/dialect", module + "internal/inbox"}, tests: "Classify|codes_of_an_application",
	},
	{
		name: "a read-only server is an outage", guarantees: "G7, F13",
		edits: []edit{{
			file: "internal/dialect/errors.go",
			from: "	case r.unconnected, r.readOnly():\n",
			to:   "	case r.unconnected:\n",
		}},
		packages: []string{module + "internal/dialect", module + "internal/inbox"}, tests: "Classify|is_read_only",
	},
	{
		name: "a statement that the server ended is named", guarantees: "G7",
		edits: []edit{{
			file: "internal/drain/trouble.go",
			from: "	case of == dialect.Interrupted:\n",
			to:   "	case of == dialect.Interrupted && err == nil:\n",
		}},
		packages: []string{module + "internal/drain"}, tests: "server_ended_a_statement",
	},
}
