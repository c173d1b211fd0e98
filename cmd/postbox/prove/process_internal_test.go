package prove

import (
	"context"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that has ended by itself is started again after a pause. A fault or the end of the run
// may come in between: then it runs once, or not at all.
func TestProcess_is_started_again_once(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var starts atomic.Int32
	r := &run{counts: map[string]int{}, context: ctx, starter: make(chan func())}
	r.Program = func() (*exec.Cmd, error) {
		if starts.Add(1) == 1 {
			return exec.CommandContext(ctx, "sh", "-c", "read line"), nil // it ends at once
		}
		return exec.CommandContext(ctx, "sleep", "600"), nil
	}
	go func() {
		for do := range r.starter {
			do()
		}
	}()
	p := &process{run: r}
	p.start()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.cmd == nil
	}, time.Minute, time.Millisecond)
	p.start() // a fault
	p.startAgain()
	require.EqualValues(t, 2, starts.Load())
	p.kill()
	p.startAgain()
	require.EqualValues(t, 2, starts.Load())
	cancel()
	close(r.starter)
}
