package dashboard_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// tick is the unit of the processor time that Linux shows of a thread.
const tick = 10 * time.Millisecond

// timed calls once without measuring. Then it reports the median of the times that calls take, the
// time within which 99 of 100 are over, and the processor time of this process and of the database
// for one call, on average. On a machine that others use, the last one says most. The server must
// run on this machine, and that must be Linux.
func (l *longBacklog) timed(b *testing.B, call func()) {
	b.Helper()
	call()
	var times []time.Duration
	before := l.processorTime(b)
	for b.Loop() {
		begin := time.Now()
		call()
		times = append(times, time.Since(begin))
	}
	used := l.processorTime(b) - before
	slices.Sort(times)
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(milliseconds(times[len(times)/2]), "ms-median")
	b.ReportMetric(milliseconds(times[(len(times)*99+99)/100-1]), "ms-p99")
	b.ReportMetric(milliseconds(used)/float64(len(times)), "ms-processor")
}

func (l *longBacklog) processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	own := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	if l.thread == 0 {
		return own
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.thread))
	require.NoError(b, err)
	_, after, _ := strings.Cut(string(text), ") ") // the name of the program may have spaces
	fields := strings.Fields(after)
	for _, field := range fields[11:13] { // in user mode and in the kernel
		n, err := strconv.Atoi(field)
		require.NoError(b, err)
		own += time.Duration(n) * tick
	}
	return own
}

func threadOf(tb testing.TB, database *testdb.Database) (thread int) {
	tb.Helper()
	query := map[postbox.Dialect]string{
		postbox.PostgreSQL: "SELECT pg_backend_pid()",
		postbox.MySQL:      "SELECT tid FROM information_schema.processlist WHERE id = CONNECTION_ID()",
	}[database.Dialect]
	if query != "" {
		require.NoError(tb, database.DB.QueryRowContext(tb.Context(), query).Scan(&thread))
	}
	return thread
}
