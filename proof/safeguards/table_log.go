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
			from: "calm := seen.renewed > 0 && ",
			to:   "calm := ",
		}, {
			file: "internal/drain/idle.go",
			from: "if seen.renewed > 0 {",
			to:   "if seen.renewed >= 0 {",
		}},
		packages: []string{module + "internal/drain"}, tests: "TestIdle",
	},
}
