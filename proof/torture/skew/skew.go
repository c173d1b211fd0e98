// Package skew builds binaries whose clocks can be set off: the time of day, and the monotonic
// clock by which Go measures pauses and deadlines. libfaketime cannot do that to a Go program,
// which asks the kernel past libc, and a time namespace gives a monotonic clock an offset once,
// before its first process. So the clocks of the standard library and of the runtime are replaced
// when the binary is built, drivers and all.
package skew

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// Variable holds how far the time of day of a binary is ahead, in whole seconds.
	Variable = "POSTBOX_TORTURE_SKEW"
	// StillVariable holds the file that says for how long the monotonic clock of a binary has stood
	// still: see [Still].
	StillVariable = "POSTBOX_TORTURE_STILL"
)

// replacement is a place of a file of the standard library, and what stands there instead.
type replacement struct{ old, new string }

// files are those of the standard library that are replaced.
var files = map[string][]replacement{
	"time/time.go": {
		{
			"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
			"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += postboxSkew\n\tmono = runtimeNano()\n",
		},
		{
			"func runtimeNow() (sec int64, nsec int32, mono int64)\n",
			"func runtimeNow() (sec int64, nsec int32, mono int64)\n" + skewed + stillFile,
		},
		{"import (\n", "import (\n\t\"syscall\"\n\t\"unsafe\"\n"},
	},
	"runtime/time_nofake.go": {
		{"func nanotime() int64 {\n\treturn nanotime1()\n}\n", standing},
	},
}

// skewed is read before anything asks for the time: package variables come before init functions.
const skewed = `
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

// stillFile gives the runtime the memory of the file.
const stillFile = `
//go:linkname postboxStand
func postboxStand(still *int64)

var _ = func() bool {
	name, _ := syscall.Getenv("` + StillVariable + `")
	if name == "" {
		return false
	}
	file, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		panic("open " + name + ": " + err.Error())
	}
	memory, err := syscall.Mmap(file, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("map " + name + ": " + err.Error())
	}
	postboxStand((*int64)(unsafe.Pointer(&memory[0])))
	return true
}()
`

// standing is the monotonic clock of the runtime, less the time for which it stood still.
const standing = `func nanotime() int64 {
	if postboxStill != nil {
		return nanotime1() - *postboxStill
	}
	return nanotime1()
}

var postboxStill *int64

//go:linkname time_postboxStand time.postboxStand
func time_postboxStand(still *int64) { postboxStill = still }
`

// rewrite returns a file of the standard library with the replacements, and fails where it is not
// the file that it knows.
func rewrite(name string, source []byte) ([]byte, error) {
	for _, r := range files[name] {
		if n := bytes.Count(source, []byte(r.old)); n != 1 {
			return nil, fmt.Errorf("%s of this Go has %d places like %q: bring package skew up to date", name, n, r.old)
		}
		source = bytes.Replace(source, []byte(r.old), []byte(r.new), 1)
	}
	return source, nil
}

// Build builds a package into the folder, and returns the binary. The first build takes minutes, as
// everything depends on the clocks; then Go's cache has it.
func Build(ctx context.Context, folder, pkg string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	replaced := map[string]string{}
	for name := range files {
		original := filepath.Join(strings.TrimSpace(string(root)), "src", filepath.FromSlash(name))
		source, err := os.ReadFile(original) //nolint:gosec // a file of Go
		if err != nil {
			return "", err
		}
		if source, err = rewrite(name, source); err != nil {
			return "", err
		}
		replaced[original] = filepath.Join(folder, filepath.Base(name))
		if err := os.WriteFile(replaced[original], source, 0o600); err != nil { //nolint:gosec // the folder of the run
			return "", err
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "skewed")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, pkg) //nolint:gosec // all of it ours
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build with other clocks: %w\n%s", err, output)
	}
	return binary, nil
}

// Still is a file that tells a running binary for how long its monotonic clock has stood still. It
// may change only while the process is stopped, and by no more than it was: a monotonic clock never
// goes back.
type Still string

// Create makes the file, for a clock that has never stood still. A binary needs it when it starts.
func (s Still) Create() error { return s.write(0) }

// Add lets the clock have stood still for another while.
func (s Still) Add(while time.Duration) error {
	text, err := os.ReadFile(string(s))
	if err != nil {
		return err
	}
	return s.write(time.Duration(binary.NativeEndian.Uint64(text)) + while) //nolint:gosec // far below the largest duration
}

// write changes the file in place: the process has its memory.
func (s Still) write(total time.Duration) error {
	file, err := os.OpenFile(string(s), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(total)), 0) //nolint:gosec // it is not negative
	if err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
