package cleanup_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The server begins with a clock that is years ahead. Dead letters are committed messages, and
// would all be too old.
func TestCleaner_F18_deletes_nothing_while_the_clock_of_the_database_is_ahead(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.MySQL(t))
	b.age(nil, 1, time.Minute)
	letters := func() int { return b.Database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters") }
	clean := func(ahead time.Duration) bool {
		db := b.Database.OpenWith(t, fmt.Sprintf("timestamp=%d", time.Now().Add(ahead).Unix()))
		return cleanup.New(db, b.Statements, "cleaner "+ahead.String(), cleanup.Config{DeadLetters: time.Hour}, watermill.NopLogger{}).Round(t.Context())
	}
	require.False(t, clean(30*24*time.Hour))
	require.Equal(t, 1, letters())
	require.True(t, clean(2*time.Hour))
	require.Zero(t, letters(), "a letter that is too old is deleted")
}
