package operatorsql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

func TestStatements_arguments_match_their_marks(t *testing.T) {
	t.Parallel()
	for _, kind := range []dialect.Kind{dialect.MySQL, dialect.SQLite} {
		shared, err := dialect.For(kind, "", "x_", "")
		require.NoError(t, err)
		for _, q := range queries(t, operatorsql.New(shared)) {
			require.Len(t, q.Args, strings.Count(q.Text, "?"), q.Text)
		}
	}
}

func queries(t *testing.T, s *operatorsql.Statements) (all []dialect.Query) {
	t.Helper()
	add := func(name string, queries ...dialect.Query) {
		for _, q := range queries {
			require.NotEmpty(t, q.Text, name)
			all = append(all, q)
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
	add("LetterEnds", s.LetterEnds(operatorsql.DeadLetterFilter{}, 1))
	add("LetterEnds, newest first", s.LetterEnds(operatorsql.DeadLetterFilter{NewestFirst: true}, 1))
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
	add("DeleteDeadLetter", s.DeleteDeadLetter(1, true))
	add("Resolve", s.Resolve(1, ""))
	add("RenameFailures", s.RenameFailures(nil, nil))
	add("Failures", s.Failures(nil, nil, 1))
	add("AuditRows", s.AuditRows(operatorsql.AuditFilter{}))
	add("AuditSearchEnd", s.AuditSearchEnd(operatorsql.AuditFilter{}, 1))
	add("InboxLetters", dialect.Query{Text: s.InboxLetters, Args: []any{1}})
	return all
}
