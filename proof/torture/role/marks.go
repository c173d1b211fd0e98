package role

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// marks are what all processes of a run remember together, whatever is killed: files in a folder.
type marks string

// leave leaves a mark, and returns false if it was there.
func (m marks) leave(name string) (bool, error) {
	file, err := os.OpenFile(filepath.Join(string(m), name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the folder of the run
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, file.Close()
}

func (m marks) has(name string) bool {
	_, err := os.Stat(filepath.Join(string(m), name))
	return err == nil
}

// healed names the mark of a poison message that does no harm any more.
func healed(message string) string { return message + ".healed" }
