package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The sources move on, and the edits with them: each must find its place. The sources are files of
// other modules, which Go's test cache does not watch: run this with -count=1.
func TestSafeguards_edits_find_their_places(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	names := map[string]bool{}
	for _, s := range safeguards {
		require.False(t, names[s.name], "%s is there twice", s.name)
		names[s.name] = true
		path, err := s.overlay(root, t.TempDir())
		require.NoError(t, err, s.name)
		list, err := os.ReadFile(path) //nolint:gosec // written by this test
		require.NoError(t, err)
		require.Contains(t, string(list), filepath.Join(root, s.edits[0].file))
		for _, path := range s.packages {
			require.DirExists(t, packageFolder(root, path), s.name)
		}
	}
}

// Tests are renamed, and a pattern that matches none would try nothing.
func TestSafeguards_name_tests_that_exist(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	for _, s := range safeguards {
		pattern, _, _ := strings.Cut(s.tests, "/") // what follows chooses subtests
		var all []string
		for _, path := range s.packages {
			names := testsIn(t, packageFolder(root, path))
			assert.True(t, slices.ContainsFunc(names, regexp.MustCompile(pattern).MatchString), "%s: no test of %s matches %s", s.name, path, pattern)
			all = append(all, names...)
		}
		for part := range strings.SplitSeq(pattern, "|") {
			if alternative, err := regexp.Compile(part); err == nil { // one in parentheses is no pattern by itself
				assert.True(t, slices.ContainsFunc(all, alternative.MatchString), "%s: no test matches %s", s.name, part)
			}
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+|Example\w*)\(`)

// testsIn returns the names of the tests of a package.
func testsIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file) //nolint:gosec // of this repository
		require.NoError(t, err)
		for _, match := range testFunction.FindAllSubmatch(source, -1) {
			names = append(names, string(match[1]))
		}
	}
	return names
}

// An edit whose place is found may still not build, when what it names has moved. Edits of
// different files are built together, since most of the time goes to what imports them.
func TestSafeguards_edits_build(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves this out: it builds what the safeguards change")
	}
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	built := 0
	for _, group := range differentFiles(safeguards) {
		var all safeguard
		arguments := []string{"build", "-overlay", ""}
		for _, s := range group {
			all.edits = append(all.edits, s.edits...)
			all.name += s.name + "; "
		}
		for _, e := range all.edits {
			folder := filepath.Dir(e.file)
			if strings.HasSuffix(e.file, ".sql") { // which is embedded there
				folder = strings.TrimSuffix(strings.TrimSuffix(folder, "/statements"), "/migrations/postgresql")
			}
			if path := module + folder; !slices.Contains(arguments, path) {
				arguments = append(arguments, path)
			}
		}
		arguments[2], err = all.overlay(root, t.TempDir())
		require.NoError(t, err, all.name)
		build := exec.CommandContext(t.Context(), "go", arguments...)
		output, err := build.CombinedOutput()
		require.NoError(t, err, "%s: %s", all.name, output)
		built += len(group)
	}
	require.Equal(t, len(safeguards), built)
}

// differentFiles groups safeguards, so that no two of a group change the same file.
func differentFiles(all []safeguard) [][]safeguard {
	var groups [][]safeguard
	var files []map[string]bool // that each group changes
	for _, s := range all {
		free := slices.IndexFunc(files, func(changed map[string]bool) bool {
			return !slices.ContainsFunc(s.edits, func(e edit) bool { return changed[e.file] })
		})
		if free < 0 {
			free = len(groups)
			groups, files = append(groups, nil), append(files, map[string]bool{})
		}
		groups[free] = append(groups[free], s)
		for _, e := range s.edits {
			files[free][e.file] = true
		}
	}
	return groups
}

func TestEdit_wants_one_place(t *testing.T) {
	t.Parallel()
	e := edit{file: "a.go", from: "x", to: "y"}
	text, err := e.apply("axb")
	require.NoError(t, err)
	require.Equal(t, "ayb", text)
	for _, source := range []string{"", "xx"} {
		_, err := e.apply(source)
		require.ErrorContains(t, err, "a.go")
	}
}

func TestFailures_names_what_failed_or_did_not_end(t *testing.T) {
	t.Parallel()
	failed, err := failures(strings.NewReader(`
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestB/sqlite"}
{"Action":"fail","Test":"TestB/sqlite"}
{"Action":"fail","Test":"TestB"}
{"Action":"run","Test":"TestHangs"}
{"Action":"run","Test":"TestHangs/postgres"}
{"Action":"pass","Test":"TestHangs/postgres"}
{"Action":"run","Test":"TestC"}
{"Action":"pass","Test":"TestC"}
{"Action":"run","Test":"TestD"}
{"Action":"skip","Test":"TestD"}
{"Action":"fail"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"TestB", "TestHangs"}, failed)

	_, err = failures(strings.NewReader(`{"Action":"fail"}`))
	require.ErrorContains(t, err, "no test ran")
}
