package dialect

import (
	"slices"
	"strconv"
	"strings"
)

// replacer replaces {name} by a text. Each constructor of Postbox makes all statements, so it must
// be fast: most of a text is copied as it is.
type replacer map[string]replacement

// replacement is what one name stands for.
type replacement struct {
	text string
	gap  bool // the space before the name goes with it
}

// newReplacer takes names in braces, each with its text behind it, as [strings.NewReplacer] does. A
// space before the brace belongs to the name.
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
		with, known := r.find(name)
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

// find returns what a name stands for. {int :page} is the text of {int ?}, of the argument :page.
func (r replacer) find(name string) (replacement, bool) {
	with, known := r[name]
	word, argument, found := strings.Cut(name, " :")
	if known || !found {
		return with, known
	}
	with, known = r[word+" ?}"]
	before, after, _ := strings.Cut(with.text, "?")
	with.text = before + ":" + strings.TrimSuffix(argument, "}") + after
	return with, known
}

// statement is a text with the names of its arguments.
type statement struct {
	text  string   // as the database gets it
	names []string // of its arguments, in their order
}

// args are arguments by their names. A statement takes those that it has.
type args map[string]any

// marked makes a statement of a text in which each argument has a name, :name. For PostgreSQL they
// become $1, $2, …, so that each is sent once; elsewhere each place becomes a ?.
func (k Kind) marked(text string) statement {
	var out strings.Builder
	out.Grow(len(text))
	var names []string
	for {
		before, after, found := strings.Cut(text, ":")
		out.WriteString(before)
		if !found {
			return statement{text: out.String(), names: names}
		}
		end := strings.IndexFunc(after, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		if end < 0 {
			end = len(after)
		}
		name := after[:end]
		switch {
		case strings.HasPrefix(after, ":"): // a cast
			out.WriteString("::")
			end = 1
		case name == "":
			out.WriteString(":")
		case k != PostgreSQL:
			out.WriteString("?")
			names = append(names, name)
		default:
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			out.WriteString("$" + strconv.Itoa(slices.Index(names, name)+1))
		}
		text = after[end:]
	}
}

// with returns the statement with its arguments. Each of them must be there.
func (t statement) with(values args) Query {
	query := Query{Text: t.text, Args: make([]any, len(t.names)), names: t.names}
	for i, name := range t.names {
		value, found := values[name]
		if !found {
			panic("dialect: a statement has no value for :" + name)
		}
		query.Args[i] = value
	}
	return query
}

// Names are those of the arguments, as far as they have names.
func (q Query) Names() []string { return q.names }

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
