// Package sharded runs the example of that name on real servers: three of PostgreSQL, and Kafka on
// three brokers. When the example asks for it, a server is killed and started again.
package sharded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// servers are those of PostgreSQL. The last one is added while orders come in.
const servers = 3

// victim is the server that is killed: it has accounts, and moves between it and another one may be
// under way. The first one holds the billing too.
const victim = 1

// Run starts the servers and the example, which prints its result. It returns an error unless the
// example ends well.
func Run(ctx context.Context, out io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "postbox-sharded-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	program := filepath.Join(folder, "sharded")
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("..", "examples"), "-o", program, "./sharded") //nolint:gosec // ours
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the example, in the folder of the module: %w\n%s", err, said)
	}
	faults := &faults{}
	defer func() { err = errors.Join(err, faults.close()) }()
	if faults.kafka, err = testcluster.StartKafka(ctx); err != nil {
		return err
	}
	args := []string{"-kafka", strings.Join(faults.kafka.Addresses(), ",")}
	for range servers {
		one, err := testcluster.StartPostgresAlone(ctx)
		if err != nil {
			return err
		}
		faults.postgres = append(faults.postgres, one)
		args = append(args, "-shard", one.PrimaryDSN("postgres"))
	}
	asked := httptest.NewServer(faults)
	defer asked.Close()
	example := exec.CommandContext(ctx, program, append(args, "-faults", asked.URL)...) //nolint:gosec // ours
	example.Stdout, example.Stderr = out, os.Stderr
	example.Cancel = func() error { return example.Process.Signal(os.Interrupt) }
	return example.Run()
}

// faults kills servers and starts them again.
type faults struct {
	postgres []*testcluster.Postgres
	kafka    *testcluster.Kafka
}

// ServeHTTP answers when the server is back.
func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.URL.Path {
	case "/postgres":
		if err = f.postgres[victim].Stop(true); err == nil {
			err = f.postgres[victim].Start(r.Context())
		}
	case "/kafka":
		if err = f.kafka.Kill(victim); err == nil {
			err = f.kafka.Start(r.Context(), victim)
		}
	default:
		err = fmt.Errorf("there is no server %q to kill", r.URL.Path)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (f *faults) close() (err error) {
	for _, one := range f.postgres {
		err = errors.Join(err, one.Close())
	}
	if f.kafka != nil {
		err = errors.Join(err, f.kafka.Close())
	}
	return err
}
