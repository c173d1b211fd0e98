package dashboard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The number of a group, the list behind it, the question of each action and what it does are about
// the same letters, also with another filter set.
func TestGroups_act_on_their_own_letters_alone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		for text, n := range map[string]int{"HTTP 503 Service Unavailable": 5, "HTTP 404": 4, "HTTP 500": 3, "declined, code=51": 2} {
			for i := range n {
				b.BuryInbox(fmt.Sprintf("%s-%d", text, i), "orders", "billing", "bank api: "+text)
			}
		}
		left := 14
		for n, noun := range []string{5: "5 dead letters", 4: "4 dead letters", 3: "3 dead letters", 2: "2 dead letters"} {
			if noun == "" {
				continue
			}
			groups := b.page("groups?error=bank&min-attempts=1")
			list := b.linkTo(groups, fmt.Sprint(n))
			require.Len(t, b.column(b.page(list), 0), n, list)
			_, row, found := strings.Cut(groups.body, fmt.Sprintf(">%d</a></th>", n))
			require.True(t, found)
			for _, action := range []string{"Requeue…", "Resolve…", "Delete…"} {
				question := b.page(b.linkTo(answer{body: row}, action))
				require.Contains(t, question.text(), noun+" match", action)
				require.Contains(t, question.text(), "Error like", action)
			}
			deleted := b.linkTo(answer{body: row}, "Delete…")
			require.Equal(t, n, finished(t, b.post(strings.Replace(deleted, "bulk?", "bulk-run?", 1), nil)))
			left -= n
			total := 0
			if left > 0 {
				total = len(b.column(b.page("letters"), 0))
			}
			require.Equal(t, left, total)
		}
		require.Contains(t, b.page("letters").text(), "There is no dead letter")
	})
}

// The latest letter of a group can be edited from its row by who may edit.
func TestGroups_lead_to_the_editor_of_their_latest_letter(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), reader())
	b.BuryInbox("m-1", "orders", "billing", "HTTP 503")
	b.BuryInbox("m-2", "orders", "billing", "HTTP 503")
	require.Empty(t, b.linkTo(b.page("groups"), "Edit it…"))
	b.restart(dashboard.Config{Authorise: as(dashboard.Access{Actor: "ada", Read: true, Act: true, Edit: true})})
	require.Equal(t, "edit?id=2", b.linkTo(b.page("groups"), "Edit it…"))
	require.Empty(t, b.linkTo(b.page("groups?resolved=any"), "Edit it…"), "a resolved letter cannot be edited")
}
