package dialect_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Every statement of every database, to be read in a review as the database gets it. After a change
// run go test ./internal/dialect -update. Those that only operators execute are in
// admin/internal/operatorsql.
func TestStatements_golden(t *testing.T) {
	t.Parallel()
	for _, kind := range []dialect.Kind{dialect.PostgreSQL, dialect.MySQL, dialect.SQLite} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			names, err := dialect.NewNames("", "", "")
			require.NoError(t, err)
			statements, err := dialect.New(kind, names)
			require.NoError(t, err)
			text := printed(statements)
			require.NotContains(t, text, "{", "every name is filled in")

			file := filepath.Join("testdata", string(kind)+".sql")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			}
			golden, err := os.ReadFile(file) //nolint:gosec // a file of this test
			require.NoError(t, err)
			require.Equal(t, string(golden), text)
		})
	}
}

func printed(s *dialect.Statements) string {
	var out strings.Builder
	show := func(name, text string, arguments []string) {
		if text == "" {
			return
		}
		if most := 20; len(arguments) > most {
			arguments = append(slices.Clone(arguments[:most]), "…")
		}
		if len(arguments) > 0 {
			name += " (" + strings.Join(arguments, ", ") + ")"
		}
		fmt.Fprintf(&out, "-- %s\n%s\n\n", name, oneLane(text))
	}
	query := func(name string, query dialect.Query) { show(name, query.Text, query.Names()) }
	value := reflect.ValueOf(s).Elem()
	for i := range value.NumField() {
		field, value := value.Type().Field(i), value.Field(i)
		name := strings.ToUpper(field.Name[:1]) + field.Name[1:]
		switch {
		case slices.Contains([]string{"Kind", "VersionTable", "ServerIn"}, field.Name): // no statements
		case field.Type.Kind() == reflect.String:
			show(name, value.String(), nil)
		case field.Type.Name() == "statement":
			names := make([]string, value.Field(1).Len())
			for i := range names {
				names[i] = value.Field(1).Index(i).String()
			}
			show(name, value.Field(0).String(), names)
		}
	}
	refs := []dialect.Ref{{Lane: 1, ID: 2, Token: 3}, {Lane: 1, ID: 3, Token: 3}}
	query("Append, one row", s.Append(1, make([]dialect.Row, 1))[0])
	query("Append, two rows", s.Append(1, make([]dialect.Row, 2))[0])
	ingest := s.Ingest(1, make([][]byte, 2), make([]dialect.Row, 2))
	if ingest.Whole.Text != "" {
		mixed := []dialect.Row{{}, {State: dialect.StateScheduled}}
		query("Append, two rows of which one waits", s.Append(1, mixed)[0])
		query("Ingest, two rows of which one waits, whole", s.Ingest(1, make([][]byte, 2), mixed).Whole)
		query("Ingest, two rows, whole", ingest.Whole)
	} else {
		query("Ingest, two rows, claim", ingest.Claim[0])
		query("Ingest, two rows, claimed", ingest.Claimed())
	}
	printUnique(&out, s)
	query("AwaitReceipts, one", s.AwaitReceipts(make([]dialect.ReceiptRow, 1))[0])
	query("Fetch, two lanes", s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 2)}))
	query("Fetch, one lane, unordered", s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 1), Unordered: true}))
	query("Fetch, one lane, excluded topics, paused and held keys", s.Fetch(dialect.FetchParams{
		Cursors: make([]dialect.Cursor, 1), Excluded: []string{"topic"}, PausedKeys: true, Held: []int64{1},
	}))
	if s.ReadsUpTo { // and the text has parts that are left out where they are not needed
		query("Fetch, two lanes up to an id", s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 2), UpTo: 1}))
		query("Fetch, one lane, due messages, many known ones", s.Fetch(dialect.FetchParams{
			Cursors: make([]dialect.Cursor, 1), Due: 1, Known: map[int][]dialect.Known{0: make([]dialect.Known, 17)},
		}))
	}
	query("Sweep", s.Sweep(dialect.SweepParams{Ranges: make([]dialect.Range, 2)}))
	query("Remove, one message", s.Remove(1, refs[:1]))
	query("Remove, two messages, on a server that was seen", s.RemoveWhere(1, refs, &dialect.Seen{}))
	query("Keep", s.Keep(1, refs))
	return strings.TrimSuffix(out.String(), "\n")
}

// oneLane leaves out the repetition of a part for each other lane, as MariaDB has it.
func oneLane(text string) string {
	first, last := strings.Index(text, " UNION ALL\n\t(SELECT"), strings.LastIndex(text, " UNION ALL\n\t(SELECT")
	if first < 0 {
		return text
	}
	end := last + strings.Index(text[last:], "LIMIT ?)") + len("LIMIT ?)")
	return text[:first] + " UNION ALL -- and so on, for each lane" + text[end:]
}

func printUnique(out *strings.Builder, s *dialect.Statements) {
	for _, p := range []dialect.UniqueParams{{}, {Replace: true}, {Row: dialect.Row{State: dialect.StateScheduled}}} {
		unique := s.AppendUnique(p)
		for i, query := range slices.Concat(unique.Before, []dialect.Query{unique.Store}, unique.After) {
			if strings.Contains(out.String(), "\n"+query.Text+"\n") { // it has the same for others
				continue
			}
			fmt.Fprintf(out, "-- AppendUnique, replace %t, state %d, statement %d\n%s\n\n", p.Replace, p.Row.State, i+1, query.Text)
		}
		if free := unique.StoreFree.Text; free != "" && !p.Replace {
			fmt.Fprintf(out, "-- AppendUnique, state %d, of a free key\n%s\n\n", p.Row.State, free)
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
