package dialect_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// If the code asks for a name that no file has, it gets an empty text. A statement in a file for
// which no code asks never runs.
func TestStatements_have_the_names_by_which_they_are_asked_for(t *testing.T) {
	t.Parallel()
	asked, written := map[string]bool{}, map[string]bool{}
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range sources {
		source, err := os.ReadFile(file) //nolint:gosec // one of ours
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`(?:query|of|rows|has)\("(\w+)"|text, values :?= "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
			asked[name[1]+name[2]] = true
		}
		for _, name := range regexp.MustCompile(`packed\("(\w+)"`).FindAllStringSubmatch(string(source), -1) {
			asked[name[1]+"Ready"], asked[name[1]+"Mixed"] = true, true
		}
	}
	fields := reflect.TypeFor[dialect.Statements]()
	for i := range fields.NumField() {
		if field := fields.Field(i); field.IsExported() && field.Type == reflect.TypeFor[string]() && field.Name != "VersionTable" {
			asked[field.Name] = true
		}
	}
	files, err := filepath.Glob("statements/*.sql")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // one of ours
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(`(?m)^-- name: (\w+)$`).FindAllStringSubmatch(string(text), -1) {
			written[name[1]] = true
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(written)), slices.Sorted(maps.Keys(asked)))
}

// A statement that is missing in one file does nothing on that database. A part of a statement does
// nothing if no code gives its condition. This test reads the files of admin, too.
func TestStatements_are_whole(t *testing.T) {
	t.Parallel()
	without := map[string]string{ // by file, what the database does without
		"statements/postgresql.sql": "Append AppendRow BeginAgain BesideWriter BuryFailed DatabaseFile FetchDue FetchLane FetchMeta FetchUpTo FindNewSpool " +
			"FindOfUniqueKey FreeLanes FreeWriters HoldWriter Impatient IngestClaimed IngestClaims IsMariaDB LockLanes MakeWritable " +
			"MigrateLock MigrateUnlock NoteFailed NoteUnique Now RetryFailed StoreUniqueIfNone Unfit",
		"statements/mysql.sql": "AppendMixed AppendOne AppendReady BeginAgain Behind BesideWriter DatabaseFile Fetch IdleLook IngestMixed IngestReady " +
			"MakeWritable Notify SettleFailed Writers",
		"statements/sqlite.sql": "AppendMixed AppendOne AppendReady AppendRow Behind FetchDue FetchLane FetchMeta FetchUpTo FindNewSpool FindOfUniqueKey " +
			"FreeLanes FreeWriters HoldLane HoldWriter IdleLook Impatient IngestMixed IngestReady IsMariaDB LockLanes LockUniqueKey " +
			"MigrateLock MigrateUnlock Notify Now RemoveOne SettleFailed StoreUniqueIfNone Uptime Writers",
		"../../admin/internal/operatorsql/statements/postgresql.sql": "CountFew CountFewStuck SearchEnd SearchUpTo StuckHeadsOfLane WaitingOfLane",
		"../../admin/internal/operatorsql/statements/mysql.sql":      "SearchPending",
		"../../admin/internal/operatorsql/statements/sqlite.sql":     "CountFew CountFewStuck SearchEnd SearchUpTo StuckHeadsOfLane WaitingOfLane",
	}
	conditions := strings.Fields("ordered some paused held excluded few many seen lock none replace ready waiting newest")
	given := ""
	for _, folder := range []string{".", "../../admin/internal/operatorsql"} {
		sources, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, file := range slices.DeleteFunc(sources, func(file string) bool { return strings.HasSuffix(file, "_test.go") }) {
			source, err := os.ReadFile(file) //nolint:gosec // one of ours
			require.NoError(t, err)
			given += string(source)
		}
	}
	for _, condition := range conditions {
		require.Contains(t, given, strconv.Quote(condition))
	}
	all, names := map[string]map[string]bool{}, map[string]map[string]bool{} // by folder, and by file
	for file := range without {
		text, err := os.ReadFile(file) //nolint:gosec // one of ours
		require.NoError(t, err)
		folder := filepath.Dir(file)
		if all[folder] == nil {
			all[folder] = map[string]bool{}
		}
		names[file] = map[string]bool{}
		for _, statement := range strings.Split(string(text), "\n-- name: ")[1:] {
			lines := strings.Split(strings.TrimSpace(statement), "\n")
			all[folder][lines[0]], names[file][lines[0]] = true, true
			written, open := 0, ""
			for _, line := range lines[1:] {
				condition, begins := strings.CutPrefix(line, "-- if ")
				switch {
				case begins:
					require.Contains(t, conditions, condition, "%s in %s", lines[0], file)
					require.Empty(t, open, "%s in %s", lines[0], file)
					open = condition
				case line == "-- end":
					require.NotEmpty(t, open, "%s in %s", lines[0], file)
					open = ""
				case !strings.HasPrefix(line, "--") && line != "":
					written++
				}
			}
			require.Empty(t, open, "%s in %s", lines[0], file)
			require.Positive(t, written, "%s in %s", lines[0], file)
		}
	}
	for file, missing := range without {
		var absent []string
		for name := range all[filepath.Dir(file)] {
			if !names[file][name] {
				absent = append(absent, name)
			}
		}
		require.ElementsMatch(t, strings.Fields(missing), absent, file)
	}
}

// What identifies a server is written in several statements, and in a text for other packages.
func TestStatements_identify_a_server_by_one_expression(t *testing.T) {
	t.Parallel()
	s, err := dialect.For(dialect.PostgreSQL, "", "", "")
	require.NoError(t, err)
	incarnation := s.Fill(dialect.PostgresIncarnation)
	require.Equal(t, "'|' || "+incarnation+" || '|'", s.ServerIn)
	require.Contains(t, s.Fetch(dialect.FetchParams{}).Text, incarnation+",")
	require.Contains(t, s.IdleLook(dialect.IdleParams{}).Text, incarnation+",")
	for _, refs := range [][]dialect.Ref{make([]dialect.Ref, 1), make([]dialect.Ref, 2)} {
		require.Contains(t, s.Remove(1, refs).Text, s.ServerIn)
	}
	for _, kind := range []dialect.Kind{dialect.MySQL, dialect.SQLite} {
		s, err := dialect.For(kind, "", "", "")
		require.NoError(t, err)
		for _, refs := range [][]dialect.Ref{make([]dialect.Ref, 1), make([]dialect.Ref, 2)} {
			require.Contains(t, s.RemoveWhere(1, refs, &dialect.Seen{}).Text, s.ServerIn)
		}
	}
}

func TestStatements_arguments_match_their_marks(t *testing.T) {
	t.Parallel()
	for _, kind := range []dialect.Kind{dialect.MySQL, dialect.SQLite} {
		names, err := dialect.NewNames("", "x_", "")
		require.NoError(t, err)
		s, err := dialect.New(kind, names)
		require.NoError(t, err)
		ingest := s.Ingest(1, make([][]byte, 3), make([]dialect.Row, 3))
		failed := s.SettleFailed(1, "process", []dialect.Failed{{}, {Dead: true}})
		for _, query := range append(slices.Concat(s.Append(1, make([]dialect.Row, 3)), ingest.Claim),
			ingest.Claimed(),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3)}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), Unordered: true, PausedKeys: true}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), UpTo: 1}),
			s.Fetch(dialect.FetchParams{UpTo: 1}),
			s.Fetch(dialect.FetchParams{UpTo: 1, Due: 1}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), Due: 1, Excluded: []string{"topic"}, Held: []int64{1, 2}}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), UpTo: 1, Due: 1, Known: map[int][]dialect.Known{0: make([]dialect.Known, 17)}}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), UpTo: 1, Excluded: []string{"topic"}}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), Excluded: []string{"topic"}, Held: []int64{1, 2}}),
			s.Sweep(dialect.SweepParams{Ranges: make([]dialect.Range, 3)}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), PausedKeys: true, Held: []int64{1, 2}}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), UpTo: 1, Held: []int64{1, 2}}),
			s.Sweep(dialect.SweepParams{Ranges: make([]dialect.Range, 3), Held: []int64{1, 2}}),
			s.Remove(1, make([]dialect.Ref, 3)),
			s.Keep(1, make([]dialect.Ref, 3)),
			s.Find(1, make([]dialect.Ref, 3)),
			s.LockAsRead(1, make([]dialect.AsRead, 3)),
			s.StandingAsRead(1, make([]dialect.AsRead, 3)),
			s.CountStarts(1, make([]dialect.AsRead, 3)),
			s.TakeBackStarts(1, make([]dialect.Ref, 3)),
			failed.Retry, failed.Bury, failed.Note, failed.Remove,
			s.Release(1, "holder", []int{1, 2}),
		) {
			require.Len(t, query.Args, strings.Count(query.Text, "?"), query.Text)
		}
	}
}

// SQLite's inserts have few texts, which can be kept prepared, however many rows there are.
func TestStatements_of_any_number_of_rows_have_few_texts_on_sqlite(t *testing.T) {
	t.Parallel()
	names, err := dialect.NewNames("", "", "")
	require.NoError(t, err)
	s, err := dialect.New(dialect.SQLite, names)
	require.NoError(t, err)
	texts := map[string]bool{}
	for n := 1; n <= s.MaxAppend; n++ {
		rows, claims := make([]dialect.Row, n), make([][]byte, n)
		for i := range n {
			rows[i].MessageID, claims[i] = fmt.Appendf(nil, "%03d", i), fmt.Appendf(nil, "%03d", i)
		}
		appended, ingest := s.Append(1, rows), s.Ingest(1, claims, rows)
		var stored, claimed []string
		for _, query := range appended {
			for i := 8; i < len(query.Args); i += 12 {
				stored = append(stored, string(query.Args[i].([]byte)))
			}
		}
		for _, query := range ingest.Claim {
			for _, arg := range query.Args {
				claimed = append(claimed, string(arg.([]byte)))
			}
		}
		for _, query := range slices.Concat(appended, ingest.Claim) {
			require.False(t, query.Once)
			texts[query.Text] = true
		}
		require.Len(t, stored, n)
		require.True(t, slices.IsSorted(stored), "the rows are in their order: %s", stored)
		require.Equal(t, stored, claimed)
	}
	require.Len(t, texts, 8, "of 8, 4, 2 and 1 rows or claims")
}

// A database that is added without an entry would silently be one that can do nothing, and has no
// name.
func TestCapabilities_each_kind_has_a_name(t *testing.T) {
	t.Parallel()
	for _, kind := range []dialect.Kind{dialect.PostgreSQL, dialect.MySQL, dialect.SQLite} {
		require.NotEmpty(t, kind.Can().Name, kind)
	}
}
