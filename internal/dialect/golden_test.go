package dialect_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
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
			names, err := dialect.NewNames("", "")
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
		if field.IsExported() && field.Type.Kind() == reflect.String && field.Name != "Kind" {
			fmt.Fprintf(&out, "-- %s\n%s\n\n", field.Name, value.Field(i).String())
		}
	}
	refs := []dialect.Ref{{Lane: 1, ID: 2, Token: 3}, {Lane: 1, ID: 3, Token: 3}}
	fmt.Fprintf(&out, "-- Append, one row\n%s\n\n", s.Append(1, make([]dialect.Row, 1)).Text)
	fmt.Fprintf(&out, "-- Append, two rows\n%s\n\n", s.Append(1, make([]dialect.Row, 2)).Text)
	ingest := s.Ingest(1, make([][]byte, 2), make([]dialect.Row, 2))
	for i, query := range []dialect.Query{ingest.Whole, ingest.Claim, ingest.Claimed} {
		if query.Text != "" {
			fmt.Fprintf(&out, "-- Ingest, two rows, %s\n%s\n\n", []string{"whole", "claim", "claimed"}[i], query.Text)
		}
	}
	fmt.Fprintf(&out, "-- Fetch, two lanes\n%s\n\n", s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 2)}).Text)
	fmt.Fprintf(&out, "-- Fetch, one lane, unordered, paused keys\n%s\n\n", s.Fetch(dialect.FetchParams{
		Cursors: make([]dialect.Cursor, 1), Unordered: true, PausedKeys: true,
	}).Text)
	fmt.Fprintf(&out, "-- Remove, one message\n%s\n\n", s.Remove(1, refs[:1]).Text)
	fmt.Fprintf(&out, "-- Remove, two messages\n%s\n\n", s.Remove(1, refs).Text)
	fmt.Fprintf(&out, "-- Keep\n%s\n\n", s.Keep(1, refs).Text)
	fmt.Fprintf(&out, "-- LockStarts\n%s\n\n", s.LockStarts(1, make([]dialect.Started, 2)).Text)
	fmt.Fprintf(&out, "-- CountStarts\n%s\n\n", s.CountStarts(1, make([]dialect.Started, 2)).Text)
	fmt.Fprintf(&out, "-- Release\n%s\n", s.Release(1, "holder", []int{1}).Text)
	return out.String()
}

func TestStatements_arguments_match_their_marks(t *testing.T) {
	t.Parallel()
	for _, kind := range []dialect.Kind{dialect.MySQL, dialect.SQLite} {
		names, err := dialect.NewNames("", "x_")
		require.NoError(t, err)
		s, err := dialect.New(kind, names)
		require.NoError(t, err)
		for _, query := range []dialect.Query{
			s.Append(1, make([]dialect.Row, 3)),
			s.Ingest(1, make([][]byte, 3), make([]dialect.Row, 3)).Claim,
			s.Ingest(1, make([][]byte, 3), make([]dialect.Row, 3)).Claimed,
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3)}),
			s.Fetch(dialect.FetchParams{Cursors: make([]dialect.Cursor, 3), Unordered: true, PausedKeys: true}),
			s.Remove(1, make([]dialect.Ref, 3)),
			s.Keep(1, make([]dialect.Ref, 3)),
			s.LockStarts(1, make([]dialect.Started, 3)),
			s.CountStarts(1, make([]dialect.Started, 3)),
			s.Release(1, "holder", []int{1, 2}),
			s.Pending(1, dialect.MessageFilter{}),
			s.Done(1, dialect.MessageFilter{}),
		} {
			require.Len(t, query.Args, strings.Count(query.Text, "?"), query.Text)
		}
	}
}
