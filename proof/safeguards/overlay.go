package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// edit replaces the one place of a source file that reads so, or every place: what statements have
// in common is written in each.
type edit struct {
	file, from, to string
	every          bool
}

// apply returns the changed text. A place that is not there, or there twice, is an error: the
// source has moved on, and the edit must follow it.
func (e edit) apply(source string) (string, error) {
	if n := strings.Count(source, e.from); n == 0 || n > 1 && !e.every {
		return "", fmt.Errorf("%s: the place to change is there %d times: %q", e.file, n, e.from)
	}
	return strings.ReplaceAll(source, e.from, e.to), nil
}

// overlay writes the changed files into a folder, and the file that tells go where they stand in.
func (s safeguard) overlay(root, folder string) (string, error) {
	changed := map[string]string{}
	for _, e := range s.edits {
		source, known := changed[e.file]
		if !known {
			bytes, err := os.ReadFile(filepath.Join(root, e.file)) //nolint:gosec // a source of our own
			if err != nil {
				return "", err
			}
			source = string(bytes)
		}
		text, err := e.apply(source)
		if err != nil {
			return "", err
		}
		changed[e.file] = text
	}
	replace := map[string]string{}
	for file, text := range changed {
		copied := filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
