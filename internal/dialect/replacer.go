package dialect

import (
	"slices"
	"strconv"
	"strings"
)

// replacer replaces {name} by a text. Each constructor of Postbox makes all statements, so it must be fast: most of a text is copied as it is.
type replacer map[string]replacement

// replacement is what one name stands for.
type replacement struct {
	text string
	gap  bool // the space before the name goes with it
}

// newReplacer takes names in braces, each with its text behind it, as [strings.NewReplacer] does. A space before the brace belongs to the name.
func newReplacer(pairs ...string) replacer {
	r := make(replacer, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		name, gap := strings.CutPrefix(pair[0], " ")
		r[name] = replacement{text: pair[1], gap: gap}
	}
	return r
}

// Replace returns the text with each name replaced once. A name without a text stays.
func (r replacer) Replace(text string) string {
	var out strings.Builder
	out.Grow(2 * len(text)) // most texts grow by less
	for {
		start := strings.IndexByte(text, '{')
		if start < 0 {
			break
		}
		length := strings.IndexByte(text[start:], '}') + 1
		if length == 0 {
			break
		}
		before, name := text[:start], text[start:start+length]
		with, known := r[name]
		if known && with.gap {
			before, known = strings.CutSuffix(before, " ")
		}
		if !known { // braces of the statement, within which there may be a name
			before, with.text, length = text[:start], "{", 1
		}
		out.WriteString(before)
		out.WriteString(with.text)
		text = text[start+length:]
	}
	out.WriteString(text)
	return out.String()
}

// dollars replaces each ? by $1, $2, … for PostgreSQL. Statements of Postbox contain no other ?.
func dollars(text string) string {
	var out strings.Builder
	out.Grow(len(text) + 2*strings.Count(text, "?"))
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString("$" + strconv.Itoa(n))
		text = after
	}
}

// unchanged keeps the ? for databases that use it.
func unchanged(text string) string { return text }
