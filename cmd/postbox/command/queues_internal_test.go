package command

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAmount_says_when_there_are_more_than_are_counted(t *testing.T) {
	t.Parallel()
	require.Equal(t, "10,000", amount(10_000))
	require.Equal(t, "10,000+", amount(10_001))
	require.Equal(t, "1 message", amountOf(1, "message"))
	require.Equal(t, "10,000+ messages", amountOf(10_001, "message"))
}

func TestCount_groups_the_digits_as_an_amount_does(t *testing.T) {
	t.Parallel()
	require.Equal(t, "10,000 messages", amountOf(10_000, "message"))
	require.Equal(t, "12,345 dead letters", count(12_345, "dead letter"))
	require.Equal(t, "1,000 outboxes or queues are", are(1000, outboxOrQueue))
}
