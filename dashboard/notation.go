package dashboard

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names, keys and ids are any bytes. In pages, in addresses and in fields of forms they are written
// in one notation, from which the same bytes are read back: a byte that is part of no printable
// character is \x and two hexadecimal digits. A backslash that would be read as the beginning of
// that is written so, too; any other text stays as it is. A browser would replace such bytes in a
// field of a form, and a character that turns the direction of writing would make a name look like
// another one.

// escaped writes bytes in the notation.
func escaped(text string) string {
	return inNotation(text, func(rest string) bool {
		_, reads := escapedByte(rest)
		return reads
	})
}

// visible writes a name for a page. A browser leaves out blanks at the ends of a text, and shows
// several blanks as one, so these are in the notation, too: a key that is copied from a page is the
// same key.
func visible(text string) string {
	text = escaped(text)
	if !strings.HasPrefix(text, " ") && !strings.HasSuffix(text, " ") && !strings.Contains(text, "  ") {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if text[i] == ' ' && (i == 0 || i == len(text)-1 || text[i-1] == ' ') {
			b.WriteString(`\x20`)
		} else {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// said writes a text that a program made, such as an error, with unprintable bytes as in the
// notation. It is not read back, so a backslash stays as it is: otherwise a name that the program
// has quoted would be escaped twice.
func said(text string) string { return inNotation(text, func(string) bool { return false }) }

// inNotation writes unprintable bytes in the notation, and also each byte for which misleads
// reports true of the text that begins there.
func inNotation(text string, misleads func(rest string) bool) string {
	if isPlain(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if misleads(text[i:]) || !strconv.IsPrint(r) || r == utf8.RuneError && size == 1 {
			for _, c := range []byte(text[i : i+size]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		} else {
			b.WriteString(text[i : i+size])
		}
		i += size
	}
	return b.String()
}

func isPlain(text string) bool {
	for _, r := range text {
		if r == '\\' || r == utf8.RuneError || !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// unescaped reads the notation.
func unescaped(text string) string {
	if !strings.Contains(text, `\x`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		if c, ok := escapedByte(text[i:]); ok {
			b.WriteByte(c)
			i += len(`\x00`)
			continue
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String()
}

// escapedByte reads the byte at the beginning of a text in the notation, if there is one.
func escapedByte(text string) (byte, bool) {
	if len(text) < len(`\x00`) || text[0] != '\\' || text[1] != 'x' {
		return 0, false
	}
	value, err := strconv.ParseUint(text[2:4], 16, 8)
	return byte(value), err == nil
}

// lines is a text of several lines for people: what is not printable is in the notation, except
// line breaks and tabs.
func lines(text string) string { return linesOf(text, escaped) }

// saidLines is a text of several lines that a program made.
func saidLines(text string) string { return linesOf(text, said) }

func linesOf(text string, write func(string) string) string {
	parts := strings.Split(text, "\n")
	for i, part := range parts {
		cells := strings.Split(strings.TrimSuffix(part, "\r"), "\t")
		for j, cell := range cells {
			cells[j] = write(cell)
		}
		parts[i] = strings.Join(cells, "\t")
	}
	return strings.Join(parts, "\n")
}

// cut returns the beginning of a text, of so many bytes at most, and whether that is not all. It
// cuts no character in two.
func cut(text string, most int) (string, bool) {
	if len(text) <= most {
		return text, false
	}
	end := most
	for end > 0 && end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], true
}

// short is the beginning of a text on one line, for a field of a table.
func short(text string) string { return shortOf(text, visible) }

// saidShort is the beginning of a text that a program made, on one line.
func saidShort(text string) string { return shortOf(text, said) }

func shortOf(text string, write func(string) string) string {
	const most = 160
	beginning, isCut := cut(text, most)
	if isCut {
		return write(beginning) + "…"
	}
	return write(beginning)
}
