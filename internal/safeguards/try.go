package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// safeguard is something without which a guarantee would not hold.
type safeguard struct {
	name       string
	guarantees string // that fall with it, and the faults that show it
	edits      []edit // that take it out
	packages   []string
	tests      string // that must notice: a pattern of names
}

// try runs the tests without the safeguard and returns the names of those that failed.
func (s safeguard) try(ctx context.Context) ([]string, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "safeguards")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	overlay, err := s.overlay(root, folder)
	if err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", append([]string{"vet", "-overlay", overlay}, s.packages...)...) //nolint:gosec // our own words
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("it does not build: %w\n%s", err, output)
	}
	test := exec.CommandContext(ctx, "go", append([]string{ //nolint:gosec // our own words
		"test", "-json", "-count=1", "-timeout=4m", "-overlay", overlay, "-run", s.tests,
	}, s.packages...)...)
	var output bytes.Buffer
	test.Stdout, test.Stderr = &output, os.Stderr
	var exit *exec.ExitError
	if err := test.Run(); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return failures(&output)
}

// failures reads what `go test -json` prints, and returns the tests that failed, by their first names. Those that hang are
// among them: the time-out of their package ends them without a word. That none ran is an error.
func failures(output io.Reader) ([]string, error) {
	ended := map[string]bool{} // well
	for decoder := json.NewDecoder(output); ; {
		var event struct{ Action, Test string }
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the output of go test: %w", err)
		}
		if event.Test == "" || strings.Contains(event.Test, "/") {
			continue
		}
		switch event.Action {
		case "run":
			ended[event.Test] = false
		case "pass", "skip":
			ended[event.Test] = true
		}
	}
	if len(ended) == 0 {
		return nil, errors.New("no test ran")
	}
	var failed []string
	for test, well := range ended {
		if !well {
			failed = append(failed, test)
		}
	}
	slices.Sort(failed)
	return failed, nil
}
