package upgrade_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// migration is one of those of a database.
type migration struct {
	version int64
	text    string
}

// migrations returns those that WriteMigrations prints, in order. The first one begins with the table of versions.
func migrations(t *testing.T, database *testdb.Database) (list []migration) {
	t.Helper()
	var text strings.Builder
	require.NoError(t, postbox.WriteMigrations(&text, database.Postbox(), 0))
	heading := regexp.MustCompile(`(?m)^-- (\d{5})_\w+\.sql$`)
	places := heading.FindAllStringSubmatchIndex(text.String(), -1)
	for i, place := range places {
		end := text.Len()
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		version, err := strconv.ParseInt(text.String()[place[2]:place[3]], 10, 64)
		require.NoError(t, err)
		begin := place[1]
		if i == 0 {
			begin = 0
		}
		list = append(list, migration{version, text.String()[begin:end]})
	}
	require.Greater(t, len(list), 7)
	return list
}

// A service that starts before the tables are migrated works, or says what to do. It never waits in silence. When the tables are migrated, all parts work.
func TestUpgrade_on_earlier_tables_each_part_works_or_says_to_migrate(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		all := migrations(t, database)
		refused := 0
		for _, m := range all {
			require.NoError(t, postbox.MigrateTo(t.Context(), database.Postbox(), m.version))
			for name, work := range parts {
				err := try(t, database, work)
				if err != nil {
					refused++
					require.ErrorContains(t, err, "call postbox.Migrate first", "%s on version %d", name, m.version)
					require.NotEqual(t, all[len(all)-1].version, m.version, name)
				}
			}
		}
		require.Positive(t, refused)
	})
}

func try(t *testing.T, database *testdb.Database, work func(context.Context, *testdb.Database) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := work(ctx, database); err != nil {
		return fmt.Errorf("work: %w", err)
	}
	return nil
}
