package dialect

import (
	"slices"
	"strconv"
	"strings"
)

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
