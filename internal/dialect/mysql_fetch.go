package dialect

import (
	"math"
	"strconv"
	"strings"
)

// mysqlShape holds everything on which the parts of a read on MySQL depend. The server optimizes each part of a text each time that
// it executes the text, which costs more than the few messages that most reads find. So a text has no part that is not needed.
type mysqlShape struct {
	fetchShape

	upTo     bool // all lanes have one part
	fewKnown bool // the messages that the caller has are listed as words
	due      bool // messages that are due are read
}

// fewKnown is the number of messages up to which a list of words costs less than one in JSON, which is a table of its own. The server
// searches a list of words from its start for each message of a read, which may be as many as a page has.
const fewKnown = 16

// mysqlText is the text of a read: a part for each lane, and the rest. It is put together for each read: a drainer may read any number of its lanes, and
// the texts for all of these numbers would take 26 MB for each shape.
type mysqlText struct{ ofLane, rest string }

// mysqlUnknown is true for a message that is not in a list, of few messages or of many.
var (
	mysqlUnknownToFew = `(FIND_IN_SET(` + nameInSQL + `, ?) = 0)`
	mysqlUnknown      = nameInSQL + ` NOT IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)`
)

// lookFrom returns the id from which messages are looked for, which no message has if that is not needed.
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

// fetch reads each lane in a part of its own, or all lanes up to an id in one part. A part costs the server about as
// much as 100 messages, since it opens its tables and lists again.
func (m mysql) fetch(f FetchParams) Query {
	known, unwanted, lanes := f.known(), f.unwanted(), make([]string, len(f.Cursors))
	shape := shapeOf(f, len(known))
	for i, c := range f.Cursors {
		lanes[i] = strconv.Itoa(c.Lane)
	}
	all, ofLanes := shape.listKnown(known), strings.Join(lanes, ",")
	var args []any
	if shape.upTo {
		args = append(args, f.Inline, f.Inline, f.Cursors[0].After, f.UpTo, f.Spool, ofLanes, all)
		args = append(args, f.unwantedTopics()...)
		if !f.Unordered {
			args = append(args, f.Spool) // of mysqlCalm
		}
		args = append(args, f.unwantedKeys()...)
	} else {
		for _, c := range f.Cursors {
			args = append(args, f.Inline, f.Inline, f.Spool, c.Lane, c.After, c.upTo(), shape.listKnown(f.Known[c.Lane]))
			args = append(append(args, unwanted...), f.PerLane)
		}
	}
	if shape.due {
		for range 2 { // retrying and scheduled messages
			args = append(args, f.Inline, f.Inline, f.Spool, ofLanes, all)
			args = append(append(args, unwanted...), f.Due)
		}
	}
	text := m.textOf(shape)
	return Query{Text: strings.Repeat(text.ofLane, len(f.Cursors)) + text.rest, Args: append(args, f.Spool, f.Spool, f.Spool, f.Spool, f.lookFrom())}
}

// textOf returns the text of a read.
func (m mysql) textOf(shape mysqlShape) mysqlText {
	if text, ok := m.fetches.Load(shape); ok {
		return text.(mysqlText)
	}
	text := mysqlText{ofLane: m.ready + unionAll, rest: m.meta}
	if shape.due {
		text.rest = m.due + unionAll + text.rest
	}
	if shape.upTo {
		text.ofLane, text.rest = "", strings.ReplaceAll(m.upTo, "{turn or calm}", m.calmTurns[shape.variant])+unionAll+text.rest
	}
	unknown := mysqlUnknown
	if shape.fewKnown {
		unknown = mysqlUnknownToFew
	}
	fill := newReplacer("{unknown}", unknown)
	for _, part := range []*string{&text.ofLane, &text.rest} {
		*part = fill.Replace(m.withTurns(shape.fetchShape, *part))
	}
	m.fetches.Store(shape, text)
	return text
}
