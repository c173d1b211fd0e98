package main

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/proof/publishers/chain"
)

func TestReceived_finds_what_is_missing_and_out_of_order(t *testing.T) {
	t.Parallel()
	all := []sent{{"a", 1}, {"a", 2}, {"a", 3}, {"b", 1}}
	for name, test := range map[string]struct {
		read                []sent
		missing, violations int
	}{
		"all":                        {all, 0, 0},
		"keys in any order":          {[]sent{{"b", 1}, {"a", 1}, {"a", 2}, {"a", 3}}, 0, 0},
		"a copy of an earlier one":   {[]sent{{"a", 1}, {"a", 2}, {"a", 1}, {"a", 3}, {"b", 1}}, 0, 0},
		"one is missing":             {[]sent{{"a", 1}, {"a", 3}, {"b", 1}}, 1, 0},
		"two are in the wrong order": {[]sent{{"a", 2}, {"a", 1}, {"a", 3}, {"b", 1}}, 0, 1},
		"each behind the last":       {[]sent{{"a", 3}, {"a", 1}, {"a", 2}, {"b", 1}}, 0, 2},
		"nothing":                    {nil, 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceived()
			for _, s := range test.read {
				r.add(s)
			}
			require.Equal(t, test.missing, r.missing(all))
			require.Equal(t, test.violations, r.violations)
		})
	}
}

func TestResult_is_bad_if_a_count_that_must_be_zero_is_not(t *testing.T) {
	t.Parallel()
	require.False(t, result{published: 4, failures: 17, counted: 1}.bad())
	require.True(t, result{dead: 1}.bad())
	require.True(t, result{missing: 1}.bad())
	require.True(t, result{orderViolations: 1}.bad())
}

// failing is a publisher that always returns the error.
type failing struct{ err error }

func (f failing) Publish(string, ...*message.Message) error { return f.err }

func (failing) Close() error { return nil }

func TestWatched_counts_errors_that_differ_only_in_names_as_one(t *testing.T) {
	t.Parallel()
	w := newWatched(failing{})
	require.NoError(t, w.Publish("topic"))
	for _, err := range []error{
		errors.New("message 0190b0a4-7c3e-7000-8000-000000000001 at 127.0.0.1:1 is lost"),
		errors.New("message 0190b0a4-7c3e-7000-8000-000000000002 at 127.0.0.1:2 is lost"),
		syscall.ECONNREFUSED,
	} {
		w.Publisher = failing{err}
		require.ErrorIs(t, w.Publish("topic"), err)
	}
	require.Equal(t, 3, w.failures())
	require.Equal(t, []string{
		"    2 × unclassified: message ID at ADDRESS is lost",
		"    1 × outage: connection refused",
	}, w.errors())
}

func TestChoose_and_parseNumbers_refuse_what_they_do_not_know(t *testing.T) {
	t.Parallel()
	all, chains, err := choose("")
	require.NoError(t, err)
	require.Len(t, all, 6)
	require.Equal(t, chain.Brokers()[0].Name, chains[0].Name)
	some, chains, err := choose("sql,kafka,redis-streams")
	require.NoError(t, err)
	require.Equal(t, []string{"sql", "kafka"}, []string{some[0].name, some[1].name})
	require.Equal(t, "redis-streams", chains[len(chains)-1].Name)
	_, _, err = choose("pigeon")
	require.ErrorContains(t, err, "pigeon")

	numbers, err := parseNumbers("1,3,300")
	require.NoError(t, err)
	require.Equal(t, []int{1, 3, 300}, numbers)
	for _, wrong := range []string{"", "0", "some"} {
		_, err := parseNumbers(wrong)
		require.Error(t, err, wrong)
	}
}
