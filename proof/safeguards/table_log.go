package main

// ofTheLog are those of a drainer that is idle while the log tells each change.
var ofTheLog = []safeguard{
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
