package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Read returns all records of a folder: file by file in the order of their names, each in the order
// in which it was written. Records of different processes are in no order with each other.
//
// The last line of a file may be torn, since its process may have been killed while it wrote: it is
// left out. Any other line that is no record, or is out of its turn, is an error.
func Read(folder string) ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*"+extension))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var records []Record
	for _, file := range files {
		if records, err = readFile(file, records); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// readFile appends the records of a file.
func readFile(file string, records []Record) ([]Record, error) {
	text, err := os.ReadFile(file) //nolint:gosec // a file of this run
	if err != nil {
		return nil, err
	}
	for n := int64(1); ; n++ {
		line, rest, whole := bytes.Cut(text, []byte{'\n'})
		if !whole { // nothing, or a torn line
			return records, nil
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, n, err)
		}
		if r.Line != n {
			return nil, fmt.Errorf("%s: line %d calls itself line %d", file, n, r.Line)
		}
		records, text = append(records, r), rest
	}
}
