package admin

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxShapeInput is how many characters of an error its shape depends on: enough for what
	// distinguishes one failure from another. It is what [operatorsql.Statements.DeadLetterErrors]
	// reads, so that a group and the filter by its shape choose the same letters.
	maxShapeInput = 512
	// maxShape bounds the bytes of a shape.
	maxShape = 200
	// taken stands for a word with a digit, and quoted for what was between quotes.
	taken, quoted = "#", "…"
	// noText is the shape of an error without text, so that such letters are a group that a filter
	// can name.
	noText = "(no text)"
	// maxCode bounds the characters of a code that is kept: an id behind the word "status" has
	// more.
	maxCode = 10
)

// short is a number that tells failures apart, such as 503 or 5.1.1, rather than messages.
var short = regexp.MustCompile(`^\d{1,3}(\.\d{1,3}\.\d{1,3})?$`)

// mostShort is the number of bytes of the longest one.
const mostShort = len("000.000.000")

// announces reports whether a code stands behind a word, such as that of an SQL state. It is asked
// of each word of ten thousand errors, so it is no regular expression.
func announces(word string) bool {
	return slices.ContainsFunc([]string{"http", "status", "code", "sqlstate", "errno"}, func(end string) bool {
		from := len(word) - len(end)
		return from >= 0 && strings.EqualFold(word[from:], end)
	})
}

// shapeText returns an error without what differs from one message to the next: each word with a
// digit (numbers, ids, hexadecimal digits, UUIDs, times) becomes "#", the contents of quotes become
// "…", and white space becomes one space. Numbers of up to three digits stay, and so do codes
// behind HTTP, status, code, SQLSTATE and errno: what they differ in differs in what must be done.
// The shape of a shape is the same. It is UTF-8 of at most 200 bytes.
func shapeText(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxShapeInput*utf8.UTFMax)], "\uFFFD")
	s := shaper{in: []rune(text)}
	s.in = s.in[:min(len(s.in), maxShapeInput)]
	for s.at < len(s.in) && !s.full {
		s.next()
	}
	return strings.TrimSpace(s.out.String())
}

// shapeOf is [Shape], and never empty.
func shapeOf(text string) string { return cmp.Or(shapeText(text), noText) }

// shaper reads a text from left to right.
type shaper struct {
	in   []rune
	at   int
	out  strings.Builder
	last rune // that was written
	full bool
	code bool // the next word is a code
}

// write adds a piece, and of one that is too long the beginning. That is no number: it would become
// another one.
func (s *shaper) write(text string) {
	if room := maxShape - s.out.Len(); len(text) > room {
		s.full = true
		text = strings.ToValidUTF8(text[:room], "")
		if strings.ContainsFunc(text, unicode.IsNumber) || strings.Contains(text, quoted) {
			return
		}
	}
	s.out.WriteString(text)
	s.last, _ = utf8.DecodeLastRuneInString(text)
}

// next reads a word, a quotation, white space, or one other character.
func (s *shaper) next() {
	switch r := s.in[s.at]; {
	case unicode.IsSpace(r) || unicode.IsControl(r):
		if s.at++; s.last != ' ' {
			s.write(" ")
		}
	case isWord(r):
		s.word()
	case s.opens(r):
		end := s.closing(r)
		if end < 0 {
			s.at++
			s.write(string(r))
			return
		}
		s.at = end + 1
		s.write(string(r) + quoted + string(r))
	default:
		s.at++
		s.write(string(r))
	}
}

// word reads letters and digits, and points and hyphens between them.
func (s *shaper) word() {
	start, digit := s.at, false
	for s.at < len(s.in) {
		r := s.in[s.at]
		joint := (r == '.' || r == '-') && s.at+1 < len(s.in) && isWord(s.in[s.at+1])
		if !isWord(r) && !joint {
			break
		}
		digit = digit || unicode.IsNumber(r)
		s.at++
	}
	word, code := string(s.in[start:s.at]), s.code
	s.code = announces(word)
	kept := code && s.at-start <= maxCode || len(word) <= mostShort && short.MatchString(word) && !s.ofTime(start)
	if digit && !kept {
		word = taken
	}
	s.write(word)
}

// ofTime reports whether the word from start is a part of digits with colons between, such as
// 15:04:05.
func (s *shaper) ofTime(start int) bool {
	colon := func(at, digit int) bool {
		return min(at, digit) >= 0 && max(at, digit) < len(s.in) && s.in[at] == ':' && unicode.IsNumber(s.in[digit])
	}
	return colon(start-1, start-2) || colon(s.at, s.at+1)
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) || r == '_' }

// opens reports whether a character begins a quotation. After a word, ' is an apostrophe.
func (s *shaper) opens(r rune) bool {
	switch r {
	case '"', '`':
		return true
	case '\'':
		return !isWord(s.last) && string(s.last) != taken
	default:
		return false
	}
}

// closing returns where the quotation at the current place ends, or -1. A character after a
// backslash does not end it.
func (s *shaper) closing(quote rune) int {
	for i := s.at + 1; i < len(s.in); i++ {
		switch s.in[i] {
		case '\\':
			i++
		case quote:
			return i
		}
	}
	return -1
}
