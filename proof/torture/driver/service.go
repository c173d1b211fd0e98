package driver

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
)

// services stops and starts the servers, through the script that has started them.
type services struct{ stopped map[string]*sync.Mutex }

// script is where it is, seen from the folder of the module proof, in which make torture starts
// this program.
const script = "../scripts/services"

func newServices(names []string) *services {
	s := &services{stopped: map[string]*sync.Mutex{}}
	for _, name := range names {
		s.stopped[name] = &sync.Mutex{}
	}
	return s
}

// outage stops a service while the function runs.
func (s *services) outage(name string, immediate bool, during func()) error {
	s.stopped[name].Lock()
	defer s.stopped[name].Unlock()
	how := "fast"
	if immediate {
		how = "immediate"
	}
	if err := control("stop", name, how); err != nil {
		return err
	}
	during()
	return control("start", name)
}

func control(words ...string) error {
	// A fault that has begun is undone, whatever becomes of the run.
	output, err := exec.CommandContext(context.Background(), script, words...).CombinedOutput() //nolint:gosec // our own script
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", script, words, err, output)
	}
	return nil
}
