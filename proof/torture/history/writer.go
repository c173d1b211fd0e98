package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// extension of the files that hold records.
const extension = ".jsonl"

// Writer writes the history of one incarnation of one process. It is safe for concurrent use.
type Writer struct {
	process string

	mu   sync.Mutex
	file *os.File
	line int64
}

// NewWriter makes the file of a process, such as "consumer-2/3", in the folder. There must be none
// of that name.
func NewWriter(folder, process string) (*Writer, error) {
	name := strings.ReplaceAll(process, "/", ".") + extension
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the folder of the run
	if err != nil {
		return nil, fmt.Errorf("begin the history of %s: %w", process, err)
	}
	return &Writer{process: process, file: file}, nil
}

// Write fills in the process, the line and the time, and hands the record to the system in one
// call: a process that is killed after Write has returned has said it. A history that cannot be
// written makes the whole run worthless, so that is a panic.
func (w *Writer) Write(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line++
	r.Process, r.Line, r.At, r.System = w.process, w.line, time.Now(), systemTime()
	line, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode a record of %s: %s", w.process, err))
	}
	if _, err := w.file.Write(append(line, '\n')); err != nil {
		panic(fmt.Sprintf("write the history of %s: %s", w.process, err))
	}
}

// systemTime asks the system past package time, whose clock the faults set off: see package skew.
func systemTime() time.Time {
	var now syscall.Timeval
	if err := syscall.Gettimeofday(&now); err != nil {
		panic(fmt.Sprintf("ask for the time: %s", err))
	}
	return time.Unix(now.Unix())
}

// Close closes the file. Nothing is lost without it.
func (w *Writer) Close() error { return w.file.Close() }
