package dashboard

import (
	"bytes"
	"encoding/json"
	"strings"
)

// maxJSON is up to which size a payload is looked at as JSON: to know whether it is valid, all of
// it is read.
const maxJSON = 1 << 20

// indentJSON indents JSON, up to so many bytes, and says whether that is all and whether it is JSON
// at all. Numbers stay as they are written, however large. It is not json.Indent, since that needs
// memory without a bound: a payload of 20 KB that is nested deep becomes 200 MB.
func indentJSON(payload []byte, most int) (text string, complete, ok bool) {
	trimmed := bytes.TrimSpace(payload)
	if len(payload) > maxJSON || len(trimmed) == 0 || !json.Valid(trimmed) {
		return "", false, false
	}
	in := indenter{most: most}
	for i := 0; i < len(trimmed) && in.out.Len() <= most; i++ {
		in.next(trimmed[i])
	}
	text, isCut := cut(in.out.String(), most)
	return text, !isCut, true
}

// indenter writes valid JSON with line breaks.
type indenter struct {
	out      strings.Builder
	most     int
	depth    int
	inString bool
	escape   bool
	opened   bool // the last thing was an opening bracket
}

func (in *indenter) next(c byte) {
	if in.inString {
		in.out.WriteByte(c)
		in.inString = in.escape || c != '"'
		in.escape = !in.escape && c == '\\'
		return
	}
	if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
		return
	}
	closes := c == '}' || c == ']'
	if closes {
		in.depth--
	}
	if in.opened != closes && (in.opened || closes) {
		in.line()
	}
	in.opened = false
	in.out.WriteByte(c)
	switch c {
	case '{', '[':
		in.depth++
		in.opened = true
	case ',':
		in.line()
	case ':':
		in.out.WriteByte(' ')
	case '"':
		in.inString = true
	}
}

func (in *indenter) line() {
	in.out.WriteByte('\n')
	in.out.WriteString(strings.Repeat("  ", min(in.depth, in.most/2)))
}
