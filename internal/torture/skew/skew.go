// Package skew builds binaries whose clock can be set off. libfaketime cannot do that to a Go program, which asks the
// kernel past libc: so the clock of the standard library is replaced when the binary is built, drivers and all.
package skew

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variable holds how far the clock of a binary is ahead, in whole seconds.
const Variable = "POSTBOX_TORTURE_SKEW"

// The places of time.go that are replaced. The monotonic clock, by which pauses and deadlines are measured, stays.
var replacements = []struct{ old, new string }{
	{
		"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
		"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += postboxSkew\n",
	},
	{
		"func runtimeNow() (sec int64, nsec int32, mono int64)\n",
		"func runtimeNow() (sec int64, nsec int32, mono int64)\n" + variable,
	},
}

// variable is read before anything asks for the time: package variables come before init functions.
const variable = `
var postboxSkew = func() (seconds int64) {
	text, _ := syscall.Getenv("` + Variable + `")
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	for _, digit := range []byte(text) {
		seconds = seconds*10 + int64(digit-'0')
	}
	if negative {
		return -seconds
	}
	return seconds
}()
`

// importsOld is where the imports of time.go begin.
const (
	importsOld = "import (\n"
	importsNew = "import (\n\t\"syscall\"\n"
)

// rewrite returns time.go with a clock that can be set off, and fails where it is not the file that it knows.
func rewrite(source []byte) ([]byte, error) {
	for _, r := range append(replacements, struct{ old, new string }{importsOld, importsNew}) {
		if n := bytes.Count(source, []byte(r.old)); n != 1 {
			return nil, fmt.Errorf("time.go of this Go has %d places like %q: bring package skew up to date", n, r.old)
		}
		source = bytes.Replace(source, []byte(r.old), []byte(r.new), 1)
	}
	return source, nil
}

// Build builds a package into the folder, and returns the binary. The first build takes minutes, as everything depends
// on the clock; then Go's cache has it.
func Build(ctx context.Context, folder, pkg string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original) //nolint:gosec // a file of Go
	if err != nil {
		return "", err
	}
	if source, err = rewrite(source); err != nil {
		return "", err
	}
	replaced, overlay := filepath.Join(folder, "time.go"), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(replaced, source, 0o600); err != nil { //nolint:gosec // the folder of the run
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: replaced}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "skewed")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, pkg) //nolint:gosec // all of it ours
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build with another clock: %w\n%s", err, output)
	}
	return binary, nil
}
