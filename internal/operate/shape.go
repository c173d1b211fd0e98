package operate

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxShapeInput is how much of an error its shape depends on: enough for what distinguishes one failure from another.
	maxShapeInput = 1024
	// maxShape bounds the bytes of a shape.
	maxShape = 200
	// taken stands for a word with a digit, and quoted for what was between quotes.
	taken, quoted = "#", "…"
)

// Shape returns an error without what differs from one message to the next: each word with a digit (numbers, ids, hexadecimal digits, UUIDs,
// times) becomes "#", the contents of quotes become "…", and white space becomes one space. The shape of a shape is the same. It is
// UTF-8 of at most 200 bytes.
func Shape(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxShapeInput)], "\uFFFD")
	s := shaper{in: []rune(text)}
	for s.at < len(s.in) && s.out.Len() < maxShape+utf8.UTFMax {
		s.next()
	}
	shape := s.out.String()
	if len(shape) > maxShape {
		shape = strings.ToValidUTF8(shape[:maxShape], "")
	}
	return strings.TrimSpace(shape)
}

// shaper reads a text from left to right.
type shaper struct {
	in   []rune
	at   int
	out  strings.Builder
	last rune // that was written
}

func (s *shaper) write(text string) {
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
	if digit {
		s.write(taken)
		return
	}
	s.write(string(s.in[start:s.at]))
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

// closing returns where the quotation at the current place ends, or -1. A character after a backslash does not end it.
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
