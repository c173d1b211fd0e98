package dialect

import (
	"math"
	"strconv"
	"strings"
)

// mysqlShape holds everything on which the parts of a read on MySQL depend. The server optimizes
// each part of a text each time that it executes the text, which costs more than the few messages
// that most reads find. So a text has no part that is not needed.
type mysqlShape struct {
	fetchShape

	upTo     bool // all lanes have one part
	fewKnown bool // the messages that the caller has are listed as words
	due      bool // messages that are due are read
}

// fewKnown is the number of messages up to which a list of words costs less than one in JSON, which
// is a table of its own. The server searches a list of words from its start for each message of a
// read, which may be as many as a page has.
const fewKnown = 16

// mysqlText is the text of a read: a part for each lane, and the rest. It is put together for each
// read: a drainer may read any number of its lanes, and the texts for all of these numbers would
// take 26 MB for each shape.
type mysqlText struct{ ofLane, rest statement }

// mysqlUnknown is true for a message that is not in a list, of few messages or of many.
var (
	mysqlUnknownToFew = `(FIND_IN_SET(` + nameInSQL + `, :known) = 0)`
	mysqlUnknown      = nameInSQL + ` NOT IN (SELECT j.n FROM JSON_TABLE(:known, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)`
)

// lookFrom returns the id from which messages are looked for, which no message has if that is not
// needed.
func (f FetchParams) lookFrom() int64 {
	if !f.Mark || f.LookFrom == 0 {
		return math.MaxInt64
	}
	return f.LookFrom
}

// shapeOf returns the shape of a read of a caller that has so many messages.
func shapeOf(f FetchParams, known int) mysqlShape {
	return mysqlShape{
		fetchShape: fetchShape{excluded: len(f.Excluded) > 0, variant: f.variant()},
		upTo:       f.UpTo > 0 && len(f.Cursors) > 0, fewKnown: known <= fewKnown, due: f.Due > 0,
	}
}

// listKnown lists messages as the text of a shape takes them.
func (s mysqlShape) listKnown(known []Known) string {
	if !s.fewKnown {
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
func (m mysql) fetch(f FetchParams) Query {
	known, lanes := f.known(), make([]string, len(f.Cursors))
	shape := shapeOf(f, len(known))
	text := m.textOf(shape)
	values := args{
		"spool": f.Spool, "inline": f.Inline, "up_to": f.UpTo, "page": f.PerLane, "due": f.Due, "look_from": f.lookFrom(),
		"excluded": List(f.Excluded), "held": List(f.Held),
	}
	var query Query
	for i, c := range f.Cursors {
		lanes[i] = strconv.Itoa(c.Lane)
		if shape.upTo {
			values["after"] = c.After // of all of them
			continue
		}
		values["lane"], values["after"], values["up_to"], values["known"] = c.Lane, c.After, c.upTo(), shape.listKnown(f.Known[c.Lane])
		query.Args = append(query.Args, text.ofLane.with(values).Args...)
	}
	values["lanes"], values["known"] = strings.Join(lanes, ","), shape.listKnown(known)
	rest := text.rest.with(values)
	if !shape.upTo {
		query.Text = strings.Repeat(text.ofLane.text, len(f.Cursors))
	}
	return Query{Text: query.Text + rest.Text, Args: append(query.Args, rest.Args...)}
}

// textOf returns the text of a read.
func (m mysql) textOf(shape mysqlShape) mysqlText {
	if text, ok := m.fetches.Load(shape); ok {
		return text.(mysqlText)
	}
	ofLane, rest := m.ready+unionAll, m.meta
	if shape.due {
		rest = m.due + unionAll + rest
	}
	if shape.upTo {
		rest = newReplacer("{turn or calm}", m.calmTurns[shape.variant]).Replace(m.upTo) + unionAll + rest
	}
	unknown := mysqlUnknown
	if shape.fewKnown {
		unknown = mysqlUnknownToFew
	}
	fill := newReplacer("{unknown}", unknown)
	filled := func(text string) statement { return MySQL.marked(fill.Replace(m.withTurns(shape.fetchShape, text))) }
	text := mysqlText{ofLane: filled(ofLane), rest: filled(rest)}
	m.fetches.Store(shape, text)
	return text
}
