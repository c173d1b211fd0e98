package operatorsql_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Every statement of every database, as the database gets it, beside those of package dialect.
// After a change run go test ./internal/operatorsql -update.
func TestStatements_golden(t *testing.T) {
	t.Parallel()
	for _, kind := range []dialect.Kind{dialect.PostgreSQL, dialect.MySQL, dialect.SQLite} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			shared, err := dialect.For(kind, "", "", "")
			require.NoError(t, err)
			text := printed(operatorsql.New(shared))
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

func TestStatements_arguments_match_their_marks(t *testing.T) {
	t.Parallel()
	for _, kind := range []dialect.Kind{dialect.MySQL, dialect.SQLite} {
		shared, err := dialect.For(kind, "", "x_", "")
		require.NoError(t, err)
		for _, q := range queries(operatorsql.New(shared)) {
			require.Len(t, q.Args, strings.Count(q.Text, "?"), q.Text)
		}
	}
}

// named is a statement with its name.
type named struct {
	name string
	dialect.Query
}

func queries(s *operatorsql.Statements) (all []named) {
	add := func(name string, queries ...dialect.Query) {
		for _, q := range queries {
			all = append(all, named{name, q})
		}
	}
	if end, separate := s.SearchEnd(1, operatorsql.MessageFilter{}, 1); separate {
		add("SearchEnd", end)
		add("SearchUpTo", s.SearchUpTo(1, operatorsql.MessageFilter{}, operatorsql.Place{}))
	} else {
		add("Search", s.Search(1, operatorsql.MessageFilter{}, 1))
	}
	add("RetryingOfKey", s.RetryingOfKey(operatorsql.KeyRef{}, operatorsql.MessageFilter{}))
	add("Done", s.Done(1, operatorsql.MessageFilter{}))
	add("DoneInOrder", s.DoneInOrder(1, operatorsql.MessageFilter{}))
	add("DeadLetters", s.DeadLetters(operatorsql.DeadLetterFilter{}))
	add("DeadLetterErrors", s.DeadLetterErrors(operatorsql.DeadLetterFilter{}))
	add("DeadLetters, newest first", s.DeadLetters(operatorsql.DeadLetterFilter{NewestFirst: true}))
	add("LetterSearchEnd", s.LetterSearchEnd(operatorsql.DeadLetterFilter{}, 1))
	add("LetterSearchEnd, newest first", s.LetterSearchEnd(operatorsql.DeadLetterFilter{NewestFirst: true}, 1))
	add("StuckHeads", s.StuckHeads(1, 1))
	add("ReadyHeads", s.ReadyHeads(1, make([]operatorsql.Head, 1)))
	add("WaitingOfKeys", s.WaitingOfKeys(1, []int64{1}, [dialect.Lanes]*int64{}, 1))
	add("CountStuck", s.CountStuck([]int64{1}, 1)...)
	add("CountFewStuck", s.CountFewStuck([]int64{1}, 1)...)
	add("CountUpTo", s.CountUpTo([]int64{1}, 1)...)
	add("CountFew", s.CountFew([]int64{1}, 1)...)
	add("PauseSpool", s.PauseSpool(1, true, operatorsql.Pause{}))
	add("PauseKey", s.PauseKey(operatorsql.KeyRef{}, operatorsql.Pause{}))
	add("ResumeKey", s.ResumeKey(operatorsql.KeyRef{}))
	add("ReplaceTopicPause", s.ReplaceTopicPause(1, "", operatorsql.Pause{}))
	add("PauseTopic", s.PauseTopic(1, "", operatorsql.Pause{}))
	add("ResumeTopic", s.ResumeTopic(1, ""))
	add("Account", dialect.Query{Text: s.Account, Args: []any{1}})
	add("LaneHolders", dialect.Query{Text: s.LaneHolders, Args: []any{1}})
	add("ChangeSpool", dialect.Query{Text: s.ChangeSpool, Args: []any{1}})
	add("LockSettings", dialect.Query{Text: s.LockSettings, Args: []any{1}})
	add("SetSettings", s.SetSettings(1, ""))
	add("PendingMessage", s.PendingMessage(operatorsql.Lookup{}))
	add("DoneMessage", s.DoneMessage(operatorsql.Lookup{}, 0))
	add("LockListed", s.LockListed(1, operatorsql.Place{}))
	add("SetDue", s.SetDue(1, dialect.Ref{}, 0))
	add("BuryWaiting", s.BuryWaiting(1, dialect.Ref{}, operatorsql.Burial{}))
	add("RemoveMessage", s.RemoveMessage(1, dialect.Ref{}))
	add("MessageOfUniqueKey", dialect.Query{Text: s.MessageOfUniqueKey, Args: []any{[]byte{}}})
	add("DeadLetter", dialect.Query{Text: s.DeadLetter, Args: []any{1}})
	add("LetterBehind", s.LetterBehind(1))
	add("DeleteDeadLetter", s.DeleteDeadLetter(1, true))
	add("Resolve", s.Resolve(1, ""))
	add("Failures", s.Failures(nil, 1))
	add("AuditRows", s.AuditRows(operatorsql.AuditFilter{}))
	add("AuditSearchEnd", s.AuditSearchEnd(operatorsql.AuditFilter{}, 1))
	add("InboxLetters", dialect.Query{Text: s.InboxLetters, Args: []any{1}})
	return all
}

func printed(s *operatorsql.Statements) string {
	var out strings.Builder
	for _, q := range queries(s) {
		name := q.name
		if names := q.Names(); len(names) > 0 && len(names) <= 20 {
			name += " (" + strings.Join(names, ", ") + ")"
		}
		fmt.Fprintf(&out, "-- %s\n%s\n\n", name, oneLane(q.Text))
	}
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
