package postbox_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
)

func TestLimits_Validate_names_each_mistake(t *testing.T) {
	t.Parallel()
	require.NoError(t, postbox.Limits{}.Validate())
	require.NoError(t, postbox.Limits{
		Total: postbox.Limit{PerSecond: 0.1, AtOnce: 1}, Topics: map[string]postbox.Limit{"a": {PerSecond: 1e6}, "b": {PerSecond: 0.00001}},
	}.Validate())
	err := postbox.Limits{
		Total:  postbox.Limit{PerSecond: math.NaN(), AtOnce: -1},
		Topics: map[string]postbox.Limit{"": {}, "b": {PerSecond: -1}, "c": {PerSecond: math.Inf(1)}, "d": {PerSecond: 1e-9}, "e": {AtOnce: math.MaxInt}},
	}.Validate()
	for _, want := range []string{"Total: PerSecond: NaN", "AtOnce: -1", "the name of a topic is empty", `Topics["b"]: PerSecond: -1`, `Topics["c"]: PerSecond: +Inf`, `Topics["d"]: PerSecond: 1e-09 is less than 0.00001`, `Topics["e"]: AtOnce: 9223372036854775807`} {
		require.ErrorContains(t, err, want)
	}
}

func TestLimits_Equal_and_None(t *testing.T) {
	t.Parallel()
	some := postbox.Limits{Topics: map[string]postbox.Limit{"a": {PerSecond: 1}}}
	require.True(t, postbox.Limits{}.None())
	require.False(t, some.None())
	require.True(t, some.Equal(postbox.Limits{Topics: map[string]postbox.Limit{"a": {PerSecond: 1}}}))
	require.False(t, some.Equal(postbox.Limits{}))
}
