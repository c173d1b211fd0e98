package release_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command that the image is built with makes a program that needs nothing else in the image.
func TestImage_has_a_program_that_needs_no_files(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short leaves this out: it builds the command line")
	}
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "postbox")
	build := regexp.MustCompile(`(?m)^RUN (.*)$`).FindAllStringSubmatch(read(t, filepath.Join(repository, "Dockerfile")), -1)
	require.Len(t, build, 1)
	command := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(build[0][1], "-o /postbox ", "-o "+program+" ")) //nolint:gosec // of the Dockerfile
	command.Dir = repository
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))

	binary, err := elf.Open(program)
	require.NoError(t, err)
	defer func() { require.NoError(t, binary.Close()) }()
	libraries, err := binary.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries, "scratch has no libraries")
	help := exec.CommandContext(t.Context(), program, "help") //nolint:gosec // built above
	help.Env = []string{}
	output, err = help.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "dashboard")
}
