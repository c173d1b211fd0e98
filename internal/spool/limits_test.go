package spool_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func TestValidLimits_name_each_mistake(t *testing.T) {
	t.Parallel()
	require.NoError(t, spool.ValidLimits(postbox.Limits{}))
	require.NoError(t, spool.ValidLimits(postbox.Limits{
		Total: postbox.Limit{PerSecond: 0.1, MaxConcurrent: 1}, Topics: map[string]postbox.Limit{"a": {PerSecond: 1e6}, "b": {PerSecond: 0.00001}},
	}))
	err := spool.ValidLimits(postbox.Limits{
		Total:  postbox.Limit{PerSecond: math.NaN(), MaxConcurrent: -1},
		Topics: map[string]postbox.Limit{"": {}, "b": {PerSecond: -1}, "c": {PerSecond: math.Inf(1)}, "d": {PerSecond: 1e-9}, "e": {MaxConcurrent: math.MaxInt}},
	})
	for _, want := range []string{"Total: PerSecond: NaN", "MaxConcurrent: -1", "the name of a topic is empty", `Topics["b"]: PerSecond: -1`, `Topics["c"]: PerSecond: +Inf`, `Topics["d"]: PerSecond: 1e-09 is less than 0.00001`, `Topics["e"]: MaxConcurrent: 9223372036854775807`} {
		require.ErrorContains(t, err, want)
	}
}

func TestValidLimits_name_topics_that_cannot_exist(t *testing.T) {
	t.Parallel()
	of := func(topic string) postbox.Limits {
		return postbox.Limits{Topics: map[string]postbox.Limit{topic: {PerSecond: 1}}}
	}
	require.NoError(t, spool.ValidLimits(of("a")))
	for want, topic := range map[string]string{"is empty": "", "ends with a space": "a ", "contains NUL": "a\x00", "not UTF-8": "\xff"} {
		require.ErrorContains(t, spool.ValidLimits(of(topic)), want)
	}
}

func TestSameLimits_and_NoLimits(t *testing.T) {
	t.Parallel()
	some := postbox.Limits{Topics: map[string]postbox.Limit{"a": {PerSecond: 1}}}
	require.True(t, spool.NoLimits(postbox.Limits{}))
	require.False(t, spool.NoLimits(some))
	require.True(t, spool.SameLimits(some, postbox.Limits{Topics: map[string]postbox.Limit{"a": {PerSecond: 1}}}))
	require.False(t, spool.SameLimits(some, postbox.Limits{}))
}
