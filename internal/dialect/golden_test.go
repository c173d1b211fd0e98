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

// Every statement of every database, to be read in a review as the database gets it. After a change run
// go test ./internal/dialect -update.
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
	value := reflect.ValueOf(s).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if field.Type.Kind() == reflect.String && field.Name != "Kind" {
			fmt.Fprintf(&out, "-- %s\n%s\n\n", strings.ToUpper(field.Name[:1])+field.Name[1:], value.Field(i).String())
		}
	}
	refs := []dialect.Ref{{Lane: 1, ID: 2, Token: 3}, {Lane: 1, ID: 3, Token: 3}}
	fmt.Fprintf(&out, "-- Append, one row\n%s\n\n", s.Append(1, make([]dialect.Row, 1))[0].Text)
	fmt.Fprintf(&out, "-- Append, two rows\n%s\n\n", s.Append(1, make([]dialect.Row, 2))[0].Text)
	ingest := s.Ingest(1, make([][]byte, 2), make([]dialect.Row, 2))
	if ingest.Whole.Text != "" {
		mixed := []dialect.Row{{}, {State: dialect.StateScheduled}}
		fmt.Fprintf(&out, "-- Append, two rows of which one waits\n%s\n\n", s.Append(1, mixed)[0].Text)
		fmt.Fprintf(&out, "-- Ingest, two rows of which one waits, whole\n%s\n\n", s.Ingest(1, make([][]byte, 2), mixed).Whole.Text)
		fmt.Fprintf(&out, "-- Ingest, two rows, whole\n%s\n\n", ingest.Whole.Text)
	} else {
		fmt.Fprintf(&out, "-- Ingest, two rows, claim\n%s\n\n", ingest.Claim[0].Text)
		fmt.Fprintf(&out, "-- Ingest, two rows, claimed\n%s\n\n", ingest.Claimed().Text)
	}
	printUnique(&out, s)
	fmt.Fprintf(&out, "-- StuckHeads, one lane\n%s\n\n", s.StuckHeads(1, 1, 1).Text)
	fmt.Fprintf(&out, "-- WaitingOfKeys, one lane\n%s\n\n", s.WaitingOfKeys(1, []*dialect.KeysOfLane{{}}, 1).Text)
	fmt.Fprintf(&out, "-- AwaitReceipts, one\n%s\n\n", s.AwaitReceipts(make([]dialect.ReceiptRow, 1))[0].Text)
	fmt.Fprintf(&out, "-- Fetch, two lanes\n%s\n\n", s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 2)}).Text)
	fmt.Fprintf(&out, "-- Fetch, one lane, unordered, paused keys\n%s\n\n", s.Fetch(dialect.FetchParams{
		Cursors: make([]dialect.Cursor, 1), Unordered: true, PausedKeys: true,
	}).Text)
	fmt.Fprintf(&out, "-- Fetch, one lane, excluded topics\n%s\n\n", s.Fetch(dialect.FetchParams{
		Cursors: make([]dialect.Cursor, 1), Excluded: []string{"topic"},
	}).Text)
	if s.ReadsUpTo { // and the text has parts that are left out where they are not needed
		fmt.Fprintf(&out, "-- Fetch, two lanes up to an id\n%s\n\n", s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 2), UpTo: 1}).Text)
		fmt.Fprintf(&out, "-- Fetch, one lane, due messages, many known ones\n%s\n\n", s.Fetch(dialect.FetchParams{
			Cursors: make([]dialect.Cursor, 1), Due: 1, Known: map[int][]dialect.Known{0: make([]dialect.Known, 17)},
		}).Text)
	}
	fmt.Fprintf(&out, "-- Fetch, one lane, held keys\n%s\n\n", s.Fetch(dialect.FetchParams{
		Cursors: make([]dialect.Cursor, 1), Held: []int64{1},
	}).Text)
	fmt.Fprintf(&out, "-- Sweep, held keys\n%s\n\n", s.Sweep(dialect.SweepParams{Ranges: make([]dialect.Range, 2), Held: []int64{1}}).Text)
	fmt.Fprintf(&out, "-- Sweep\n%s\n\n", s.Sweep(dialect.SweepParams{Ranges: make([]dialect.Range, 2)}).Text)
	fmt.Fprintf(&out, "-- Remove, one message\n%s\n\n", s.Remove(1, refs[:1]).Text)
	fmt.Fprintf(&out, "-- Remove, two messages\n%s\n\n", s.Remove(1, refs).Text)
	fmt.Fprintf(&out, "-- Keep\n%s\n\n", s.Keep(1, refs).Text)
	if s.Kind == dialect.PostgreSQL { // elsewhere the texts are the same
		waited := []dialect.Ref{{State: dialect.StateRetrying}}
		fmt.Fprintf(&out, "-- Remove, one message that waited\n%s\n\n", s.Remove(1, waited).Text)
		fmt.Fprintf(&out, "-- Keep, one message that waited\n%s\n\n", s.Keep(1, waited).Text)
	}
	fmt.Fprintf(&out, "-- Lock\n%s\n\n", s.Lock(1, refs).Text)
	fmt.Fprintf(&out, "-- Find\n%s\n\n", s.Find(1, refs).Text)
	fmt.Fprintf(&out, "-- Standing\n%s\n\n", s.StandingWhere(1, refs, nil).Text)
	fmt.Fprintf(&out, "-- LockAsRead\n%s\n\n", s.LockAsRead(1, make([]dialect.AsRead, 2)).Text)
	fmt.Fprintf(&out, "-- StandingAsRead\n%s\n\n", s.StandingAsRead(1, make([]dialect.AsRead, 2)).Text)
	fmt.Fprintf(&out, "-- CountStarts\n%s\n\n", s.CountStarts(1, make([]dialect.AsRead, 2)).Text)
	fmt.Fprintf(&out, "-- TakeBackStarts\n%s\n\n", s.TakeBackStarts(1, refs).Text)
	fmt.Fprintf(&out, "-- BuryRows\n%s\n\n", s.BuryRows(make([]dialect.Letter, 2))[0].Text)
	fmt.Fprintf(&out, "-- Release\n%s\n", s.Release(1, "holder", []int{1}).Text)
	return out.String()
}

func printUnique(out *strings.Builder, s *dialect.Statements) {
	for _, p := range []dialect.UniqueParams{{}, {Replace: true}, {Row: dialect.Row{State: dialect.StateScheduled}}} {
		unique := s.AppendUnique(p)
		for i, query := range slices.Concat(unique.Before, []dialect.Query{unique.Store}, unique.After) {
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
			s.StandingWhere(1, make([]dialect.Ref, 3), nil),
			s.StandingWhere(1, make([]dialect.Ref, 3), &dialect.Seen{}),
			s.LockAsRead(1, make([]dialect.AsRead, 3)),
			s.StandingAsRead(1, make([]dialect.AsRead, 3)),
			s.CountStarts(1, make([]dialect.AsRead, 3)),
			s.TakeBackStarts(1, make([]dialect.Ref, 3)),
			s.BuryRows(make([]dialect.Letter, 3))[0],
			failed.Retry, failed.Bury, failed.Note, failed.Remove,
			s.Release(1, "holder", []int{1, 2}),
			s.Pending(1, dialect.MessageFilter{}),
			search(s),
			s.RetryingOfKey(dialect.KeyRef{}, dialect.MessageFilter{}),
			s.Done(1, dialect.MessageFilter{}),
		) {
			require.Len(t, query.Args, strings.Count(query.Text, "?"), query.Text)
		}
	}
}

// search is the statement that looks at messages.
func search(s *dialect.Statements) dialect.Query {
	if _, separate := s.SearchEnd(1, dialect.MessageFilter{}, 1); separate {
		return s.SearchUpTo(1, dialect.MessageFilter{}, dialect.Place{})
	}
	return s.Search(1, dialect.MessageFilter{}, 1)
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

// A database that is added without an entry would silently be one that can do nothing, and has no name.
func TestCapabilities_each_kind_has_a_name(t *testing.T) {
	t.Parallel()
	for _, kind := range []dialect.Kind{dialect.PostgreSQL, dialect.MySQL, dialect.SQLite} {
		require.NotEmpty(t, kind.Can().Name, kind)
	}
}
