package chain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testservice"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
	"github.com/postbox-go/watermill-postbox/proof/publishers/chain"
)

// The short form of make publishers. All brokers are tried at the same time, however few tests run
// in parallel, since most of them wait.
func TestChain_G2_G5_each_message_has_its_effect_once_and_in_order_while_the_broker_fails(t *testing.T) {
	testservice.Address(t, place.Variable)
	type outcome struct {
		result chain.Result
		err    error
	}
	outcomes := map[string]chan outcome{}
	for _, broker := range chain.Brokers() {
		ended := make(chan outcome, 1)
		outcomes[broker.Name] = ended
		go func() {
			result, err := chain.Run(t.Context(), broker, chain.Config{Rounds: 1, Messages: 80})
			ended <- outcome{result, err}
		}()
	}
	for name, ended := range outcomes {
		t.Run(name, func(t *testing.T) {
			o := <-ended
			require.NoError(t, o.err)
			t.Log(o.result)
			require.NoError(t, o.result.Fault())
			require.Positive(t, o.result.Applied)
			require.Equal(t, o.result.Committed, o.result.Applied)
			require.Positive(t, o.result.Nacks)
			require.Positive(t, o.result.LostAcks)
			require.Positive(t, o.result.Faults["outage"])
		})
	}
}

func TestResult_order_counts_only_where_the_broker_promises_it(t *testing.T) {
	t.Parallel()
	require.NoError(t, chain.Result{}.Fault())
	require.Error(t, chain.Result{Account: place.Account{Disordered: 1}}.Fault())
	require.NoError(t, chain.Result{Account: place.Account{Disordered: 1}, Unordered: true}.Fault())
	require.Error(t, chain.Result{Account: place.Account{Lost: 1}, Unordered: true}.Fault())
	require.Error(t, chain.Result{Account: place.Account{Twice: 1}, Unordered: true}.Fault())
	require.Error(t, chain.Result{Dead: 1}.Fault())
}
