package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
)

// The formats of the output.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatJSONL = "jsonl"
)

var formats = []string{formatTable, formatJSON, formatJSONL}

func checkFormat(format string) error {
	if !slices.Contains(formats, format) {
		return usagef("--output: %.30q is not one of %s", format, strings.Join(formats, ", "))
	}
	return nil
}

// printer writes results in one format.
type printer struct {
	w      io.Writer
	format string
}

// list is a result with any number of rows. They are written as they come, so that memory is
// bounded however many there are.
type list struct {
	printer
	table *tabwriter.Writer
	rows  int
}

// tableRows is after how many rows a table begins to write, with the columns as wide as these rows
// need.
const tableRows = 1000

func (p printer) list(header ...string) *list {
	l := &list{printer: p}
	if p.format == formatTable {
		l.table = tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
		l.line(header)
	}
	return l
}

// add writes a row: the cells of the table, which must be safe to print, or the record as JSON.
func (l *list) add(record any, cells ...string) error {
	l.rows++
	switch l.format {
	case formatTable:
		l.line(cells)
		if l.rows%tableRows == 0 {
			return l.table.Flush()
		}
		return nil
	case formatJSON:
		before := ",\n"
		if l.rows == 1 {
			before = "[\n"
		}
		if _, err := io.WriteString(l.w, before); err != nil {
			return err
		}
	}
	text, err := encode(record)
	if err != nil {
		return err
	}
	if l.format == formatJSONL {
		text += "\n"
	}
	_, err = io.WriteString(l.w, text)
	return err
}

// end writes what is left.
func (l *list) end() error {
	switch {
	case l.format == formatTable:
		return l.table.Flush()
	case l.format == formatJSON && l.rows == 0:
		_, err := io.WriteString(l.w, "[]\n")
		return err
	case l.format == formatJSON:
		_, err := io.WriteString(l.w, "\n]\n")
		return err
	}
	return nil
}

func (l *list) line(cells []string) {
	fmt.Fprintln(l.table, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

// one writes a single result: the text, which must be safe to print, or the record as JSON.
func (p printer) one(record any, text string) error {
	if p.format != formatTable {
		encoded, err := encode(record)
		if err != nil {
			return err
		}
		text = encoded + "\n"
	}
	_, err := io.WriteString(p.w, text)
	return err
}

// field is a line of the text about a single thing.
type field struct{ name, value string }

// fields writes them below each other, without those that are empty.
func fields(list ...field) string {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, f := range list {
		if f.value != "" {
			fmt.Fprintf(table, "%s:\t%s\n", f.name, f.value)
		}
	}
	_ = table.Flush() // to memory
	return text.String()
}

// encode returns a record as JSON in one line. Characters that a terminal could act on are escaped:
// encoding/json leaves some of them.
func encode(record any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(record); err != nil {
		return "", fmt.Errorf("encode the result: %w", err)
	}
	var safe strings.Builder
	for _, r := range strings.TrimSuffix(text.String(), "\n") {
		switch {
		case strconv.IsPrint(r):
			safe.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&safe, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
	}
	return safe.String(), nil
}
