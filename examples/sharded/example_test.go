package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Three databases of one server stand for three servers here; make clusters has three of them, and
// kills them too.
func TestRun_G3_accounts_move_between_servers_while_orders_come_in(t *testing.T) {
	t.Parallel()
	args := []string{"-kafka", testservice.Address(t, testservice.KafkaVariable), "-events", "40"}
	for range fewest {
		args = append(args, "-shard", testdb.Postgres(t).DSN)
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), args, strings.NewReader(""), &out), out.String())
	require.Contains(t, out.String(), "RESULT lost=0 applied_twice=0 order_violations=0 never_committed=0 wrong_balances=0 ")
}
