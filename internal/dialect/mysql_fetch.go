package dialect

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// fewKnown is the number of messages up to which a list of words costs less than one in JSON, which
// is a table of its own. The server searches a list of words from its start for each message of a
// read, which may be as many as a page has.
const fewKnown = 16

// lookFrom returns the id from which messages are looked for, which no message has if that is not
// needed.
func (f FetchParams) lookFrom() int64 {
	if !f.Mark || f.LookFrom == 0 {
		return math.MaxInt64
	}
	return f.LookFrom
}

// listKnown lists messages as a text for few or for many takes them.
func listKnown(known []Known, few bool) string {
	if !few {
		return List(names(known))
	}
	words := make([]string, len(known))
	for i, name := range names(known) {
		words[i] = strconv.FormatUint(name, 10)
	}
	return strings.Join(words, ",")
}

// fetch reads each lane in a part of its own, or all lanes up to an id in one part. A part costs
// the server about as much as 100 messages, since it opens its tables and lists again.
//
// The text is put together for each read: a drainer may read any number of its lanes, and the texts
// for all of these numbers would take 26 MB for each set of conditions.
func (m mysql) fetch(f FetchParams) Query {
	known, lanes, conditions := f.known(), make([]string, len(f.Cursors)), f.conditions()
	few := len(known) <= fewKnown
	if few {
		conditions = append(conditions, "few")
	} else {
		conditions = append(conditions, "many")
	}
	values := args{
		"spool": f.Spool, "inline": f.Inline, "up_to": f.UpTo, "page": f.PerLane, "due": f.Due, "look_from": f.lookFrom(),
		"excluded": List(f.Excluded), "held": List(f.Held),
	}
	ofLane := m.of("FetchLane", conditions...)
	var parts []Query
	for i, c := range f.Cursors {
		lanes[i], values["after"] = strconv.Itoa(c.Lane), c.After
		if f.UpTo == 0 {
			values["lane"], values["up_to"], values["known"] = c.Lane, c.upTo(), listKnown(f.Known[c.Lane], few)
			parts = append(parts, ofLane.with(values))
		}
	}
	values["lanes"], values["known"] = strings.Join(lanes, ","), listKnown(known, few)
	if f.UpTo > 0 && len(f.Cursors) > 0 {
		parts = append(parts, m.of("FetchUpTo", conditions...).with(values))
	}
	if f.Due > 0 {
		parts = append(parts, m.of("FetchDue", conditions...).with(values))
	}
	return unionAll(append(parts, m.query("FetchMeta", values)))
}

// unionAll makes one query of several.
func unionAll(parts []Query) Query {
	texts, arguments := make([]string, len(parts)), make([][]any, len(parts))
	for i, part := range parts {
		texts[i], arguments[i] = part.Text, part.Args
	}
	return Query{Text: strings.Join(texts, "\nUNION ALL\n"), Args: slices.Concat(arguments...)}
}
