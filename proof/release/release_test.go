package release_test

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const mainModule = "github.com/postbox-go/watermill-postbox"

// version is one that no other run has: Go keeps each version that it has downloaded.
var version = fmt.Sprintf("v0.0.0-test.%d", time.Now().UnixNano())

// The modules that users import build from the published main module, and from the one that the
// command line needs, and the others still build in the repository.
func TestReleaseModules_leaves_no_replace_in_what_users_import(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves this out: it copies and builds the repository")
	}
	repository := copyRepository(t)
	environment := published(t, repository)
	run := func(folder, name string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...) //nolint:gosec // commands of this test
		command.Dir, command.Env = filepath.Join(repository, folder), environment
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s %v in %s:\n%s", name, args, folder, output)
		return string(output)
	}
	require.Contains(t, run(".", "scripts/release-modules", version), "metrics/prommetrics: publish the tag admin/"+version+" first")
	publish(t, environment, repository, "admin")
	require.Contains(t, run(".", "scripts/release-modules", version), "cmd/postbox: publish the tag tail/pgtail/"+version+" first")
	publish(t, environment, repository, "tail/pgtail")
	publish(t, environment, repository, "dashboard")
	require.NotContains(t, run(".", "scripts/release-modules", version), "first")

	released := strings.Fields(run(".", "scripts/modules", "released"))
	require.Contains(t, released, "brokers/kafkabroker")
	require.Contains(t, released, "brokers/amqpbroker")
	require.Contains(t, released, "brokers/amqpbrokerv3")
	require.Contains(t, released, "metrics/prommetrics")
	require.Contains(t, released, "metrics/otelmetrics")
	require.Contains(t, released, "cmd/postbox")
	require.Contains(t, released, "tracing/oteltracing")
	require.Contains(t, released, "admin")
	require.Contains(t, released, "postboxtest")
	require.Contains(t, released, "receipts")
	require.Contains(t, released, "sources")
	for _, folder := range released {
		text := read(t, filepath.Join(repository, folder, "go.mod"))
		require.NotContains(t, text, "replace", folder)
		if folder == "." {
			continue
		}
		require.Contains(t, text, mainModule+" "+version, folder)
		require.Contains(t, read(t, filepath.Join(repository, folder, "go.sum")), mainModule+" "+version+" h1:", folder)
		require.Equal(t, version, strings.TrimSpace(run(folder, "go", "list", "-m", "-f", "{{.Version}}", mainModule)), folder)
		run(folder, "go", "mod", "tidy", "-diff")
		run(folder, "go", "build", "./...")
	}

	checkService(t, environment)

	for _, folder := range []string{"examples", "proof"} {
		text := read(t, filepath.Join(repository, folder, "go.mod"))
		require.Contains(t, text, mainModule+" => ..", folder)
		run(folder, "go", "list", "-m", "all") // fails where go.mod is not complete
	}
}

// checkService makes a service that uses the outbox and the inbox, as the README says, and looks at
// what it has to download and verify.
func checkService(t *testing.T, environment []string) {
	t.Helper()
	folder := t.TempDir()
	program := "package main\n\nimport (\n"
	arguments := []string{"get"}
	for _, name := range []string{"forwarder", "inboxstore", "middleware", "router"} {
		program += fmt.Sprintf("\t_ %q\n", mainModule+"/"+name)
		arguments = append(arguments, mainModule+"/"+name+"@"+version)
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(program+")\n\nfunc main() {}\n"), 0o600))
	for _, args := range [][]string{{"mod", "init", "service"}, arguments, {"build", "."}} {
		command := exec.CommandContext(t.Context(), "go", args...) //nolint:gosec // arguments of this test
		command.Dir, command.Env = folder, environment
		output, err := command.CombinedOutput()
		require.NoError(t, err, "go %v:\n%s", args, output)
	}
	sums := read(t, filepath.Join(folder, "go.sum"))
	others := strings.Count(sums, "\n") - strings.Count(sums, mainModule+" ")
	t.Logf("go.sum of a service has %d lines of other modules", others)
	require.LessOrEqual(t, others, mostSums)
	for _, module := range []string{"sarama", "amqp", "sqlite", "pgx", "go-sql-driver", "toxiproxy", "opentelemetry"} {
		require.NotContains(t, sums, module)
	}
}

// mostSums is how many lines of other modules a service may have in its go.sum.
const mostSums = 73

func TestReleaseModules_wants_a_version(t *testing.T) {
	t.Parallel()
	for _, argument := range []string{"", "0.1.0", "v1"} {
		output, err := exec.CommandContext(t.Context(), "../../scripts/release-modules", argument).CombinedOutput() //nolint:gosec // a script of our own
		require.Error(t, err, argument)
		require.Contains(t, string(output), "usage: scripts/release-modules v0.1.0", argument)
	}
}

func copyRepository(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, file := range files(t, "../..", false) {
		content, err := os.ReadFile(filepath.Join("../..", file)) //nolint:gosec // found by this test
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join("../..", file))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(folder, filepath.Dir(file)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), content, info.Mode())) //nolint:gosec // scripts stay executable
	}
	return folder
}

// published makes a module proxy of files that has the main module in the version, before the
// proxies that there are, and returns the environment of commands that use it.
func published(t *testing.T, repository string) []string {
	t.Helper()
	root := t.TempDir()
	proxies, err := exec.CommandContext(t.Context(), "go", "env", "GOPROXY").Output()
	require.NoError(t, err)
	environment := append(os.Environ(), proxyVariable+filepath.ToSlash(root)+","+strings.TrimSpace(string(proxies)), "GONOSUMDB="+mainModule, "GOFLAGS=-modcacherw")
	publish(t, environment, repository, ".")
	return environment
}

const proxyVariable = "GOPROXY=file://"

// publish puts a module of the repository into the proxy of an environment.
func publish(t *testing.T, environment []string, repository, module string) {
	t.Helper()
	var root string
	for _, variable := range environment {
		if rest, ok := strings.CutPrefix(variable, proxyVariable); ok {
			root, _, _ = strings.Cut(rest, ",")
		}
	}
	path := strings.TrimSuffix(mainModule+"/"+module, "/.")
	folder := filepath.Join(root, filepath.FromSlash(path), "@v")
	require.NoError(t, os.MkdirAll(folder, 0o750))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	write("list", version+"\n")
	write(version+".info", `{"Version":"`+version+`"}`)
	write(version+".mod", read(t, filepath.Join(repository, module, "go.mod")))
	archive, err := os.Create(filepath.Join(folder, version+".zip")) //nolint:gosec // in a folder of this test
	require.NoError(t, err)
	writer := zip.NewWriter(archive)
	for _, file := range files(t, filepath.Join(repository, module), true) {
		entry, err := writer.Create(path + "@" + version + "/" + filepath.ToSlash(file))
		require.NoError(t, err)
		_, err = entry.Write([]byte(read(t, filepath.Join(repository, module, file))))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	require.NoError(t, archive.Close())
	t.Cleanup(func() { forget(t, path) })
}

// forget removes the version of a module from Go's cache of modules.
func forget(t *testing.T, path string) {
	t.Helper()
	output, err := exec.Command("go", "env", "GOMODCACHE").Output() //nolint:noctx // the test's context is over
	require.NoError(t, err)
	cache, module := strings.TrimSpace(string(output)), filepath.FromSlash(path)
	found, err := filepath.Glob(filepath.Join(cache, "cache", "download", module, "@v", version+".*"))
	require.NoError(t, err)
	for _, path := range append(found, filepath.Join(cache, module+"@"+version)) {
		require.NoError(t, os.RemoveAll(path))
	}
}

// files returns the paths of all files in a folder, without those of Git and of built tools, and
// without those of modules inside if only the main one is asked for.
func files(t *testing.T, root string, mainAlone bool) []string {
	t.Helper()
	var found []string
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			found = append(found, path)
			return nil
		}
		_, err = os.Stat(filepath.Join(root, path, "go.mod"))
		if path == ".git" || path == "bin" || mainAlone && path != "." && err == nil {
			return fs.SkipDir
		}
		return nil
	}))
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path) //nolint:gosec // found by this test
	require.NoError(t, err)
	return string(text)
}
