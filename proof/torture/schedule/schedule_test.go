package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/torture/schedule"
)

var processes = []schedule.Process{
	{Name: "producer-1", Services: []string{"postgres"}},
	{Name: "forwarder-1", Services: []string{"postgres", "rabbitmq", "kafka"}},
}

func TestNew_depends_only_on_the_seed(t *testing.T) {
	t.Parallel()
	first, err := schedule.New(7, 3*time.Minute, schedule.Kinds(), processes)
	require.NoError(t, err)
	again, err := schedule.New(7, 3*time.Minute, schedule.Kinds(), processes)
	require.NoError(t, err)
	require.Equal(t, first, again)
	other, err := schedule.New(8, 3*time.Minute, schedule.Kinds(), processes)
	require.NoError(t, err)
	require.NotEqual(t, first, other)

	longer, err := schedule.New(7, 4*time.Minute, schedule.Kinds(), processes)
	require.NoError(t, err)
	require.Equal(t, first, longer[:len(first)], "a longer run begins like a shorter one")
}

func TestNew_uses_every_kind_within_the_time(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		faults, err := schedule.New(seed, 3*time.Minute, schedule.Kinds(), processes)
		require.NoError(t, err)
		seen := map[schedule.Kind]int{}
		last := time.Duration(0)
		for _, f := range faults {
			require.Greater(t, f.At, last)
			require.Less(t, f.At, 3*time.Minute)
			require.Less(t, f.For, time.Minute)
			last = f.At
			seen[f.Kind]++
			if f.Process == "producer-1" {
				require.Contains(t, []string{"", "postgres"}, f.Service, "a wire that nobody uses is no fault")
			}
		}
		for _, kind := range schedule.Kinds() {
			require.Positive(t, seen[kind], "seed %d: %s", seed, kind)
		}
	}
}

func TestNew_leaves_time_between_stops_of_services(t *testing.T) {
	t.Parallel()
	stops, err := schedule.New(3, 3*time.Minute, []schedule.Kind{schedule.Crash, schedule.Kafka}, processes)
	require.NoError(t, err)
	require.Greater(t, len(stops), 8)
	for n := range stops[1:] {
		require.Greater(t, stops[n+1].At-stops[n].At, 10*time.Second)
	}
}

func TestNew_keeps_to_the_kinds(t *testing.T) {
	t.Parallel()
	kinds, err := schedule.Parse("kill, pause,kill")
	require.NoError(t, err)
	require.Equal(t, []schedule.Kind{schedule.Kill, schedule.Pause}, kinds)
	faults, err := schedule.New(1, time.Minute, kinds, processes)
	require.NoError(t, err)
	require.NotEmpty(t, faults)
	for _, f := range faults {
		require.Contains(t, kinds, f.Kind)
		require.Contains(t, []string{"producer-1", "forwarder-1"}, f.Process)
	}
}

func TestParse_refuses_what_it_does_not_know(t *testing.T) {
	t.Parallel()
	_, err := schedule.Parse("kill,flood")
	require.ErrorContains(t, err, "flood")
	all, err := schedule.Parse("")
	require.NoError(t, err)
	require.Equal(t, schedule.Kinds(), all)
}
