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
	"path/filepath"
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
	root, err := filepath.Abs("..") // make safeguards starts this in the module, which is a folder of the repository
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
	var output bytes.Buffer
	for _, path := range s.packages {
		if err := s.test(ctx, packageFolder(root, path), overlay, &output); err != nil {
			return nil, err
		}
	}
	return failures(&output)
}

// test runs the tests of one package with the changed sources. It adds what `go test -json` prints
// to the output. A test that fails is no error.
func (s safeguard) test(ctx context.Context, folder, overlay string, output io.Writer) error {
	build := exec.CommandContext(ctx, "go", "vet", "-overlay", overlay, ".") //nolint:gosec // our own words
	build.Dir = folder
	if message, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("it does not build: %w\n%s", err, message)
	}
	test := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout=4m", "-overlay", overlay, "-run", s.tests, ".") //nolint:gosec // our own words
	test.Dir, test.Stdout, test.Stderr = folder, output, os.Stderr
	var exit *exec.ExitError
	if err := test.Run(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// packageFolder returns where a package is. Go runs there, so it takes the module that the package
// belongs to.
func packageFolder(root, path string) string {
	return filepath.Join(root, strings.TrimPrefix(path+"/", module))
}

// failures reads what `go test -json` prints, and returns the tests that failed, by their first
// names. Those that hang are among them: the time-out of their package ends them without a word.
// That none ran is an error.
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
