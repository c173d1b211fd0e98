package command

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// Topics, keys, errors and payloads come from producers and handlers, and so perhaps from
// attackers. A terminal would act on control characters in them: it would move the cursor, or
// change the title of its window. So none of them are printed as they are.

// cell makes a text safe for a field of a table: it is quoted if it has a control character, a line
// break, or bytes that are not UTF-8, or begins or ends with a blank, which would not be seen.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	if text == "-" || strings.HasPrefix(text, `"`) || strings.Trim(text, " ") != text || !printable(text) {
		return strconv.Quote(text)
	}
	return text
}

// nameCell is a cell with a name: a topic, a key, the id of a message, an outbox, a queue or a
// consumer. It can be copied into a shell, for another command. Blanks at its ends are not lost,
// and nothing in it is a command to the shell, since a producer may have chosen it.
func nameCell(text string) string {
	switch text {
	case "":
		return "-"
	case "-":
		return "'-'"
	default:
		return shellWord(text)
	}
}

// plainWord matches words that a shell takes as they are.
var plainWord = regexp.MustCompile(`^[\pL\pN_./:@%+,-][\pL\pN_./:@%+,=#-]*$`)

// shellWord writes a name so that it can be pasted into a shell, and that [nameOf] reads it. Bytes
// that cannot be typed are written as escape sequences.
func shellWord(text string) string {
	if !printable(text) || strings.HasPrefix(text, `"`) || strings.HasPrefix(text, "-") { // a name such as --yes is no flag
		text = strconv.Quote(text)
	}
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// nameOf returns a name. It may be written within quotation marks, with escape sequences, since it
// may have bytes that cannot be typed.
func nameOf(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	plain, err := strconv.Unquote(text)
	if err != nil {
		return "", usage(errQuoted)
	}
	return plain, nil
}

var errQuoted = errors.New("a name that begins with a quotation mark is written as the lists print it, such as '\"\\\"quoted\\\"\"'")

// quotable is a flag with a name.
type quotable string

// String returns the value as it is.
func (q *quotable) String() string { return string(*q) }

// Set takes the value, as the user has written it.
func (q *quotable) Set(text string) error {
	plain, err := nameOf(text)
	*q = quotable(plain)
	return err
}

// Type is how the help names the value.
func (q *quotable) Type() string { return "string" }

// nameVar is StringVar for a flag with a name.
func nameVar(flags *pflag.FlagSet, to *string, flag, usage string) {
	flags.Var((*quotable)(to), flag, usage)
}

// maxCell is how many characters of an error a table shows. In an outage, the first 60 or so only
// say that the message waits and for which topic.
const maxCell = 120

// short is a cell with the beginning of a long text.
func short(text string) string {
	if utf8.RuneCountInString(text) > maxCell {
		text = string([]rune(text)[:maxCell]) + "…"
	}
	return cell(text)
}

func printable(text string) bool {
	for _, r := range text {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// lines makes a text safe that may have several lines.
func lines(text string) string {
	var safe strings.Builder
	for _, r := range text {
		switch {
		case r == '\n', r == '\t', strconv.IsPrint(r):
			safe.WriteRune(r)
		default:
			safe.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return safe.String()
}

// block is a text of several lines, indented, so that no line of it looks like one of ours.
func block(text string) string {
	return "  " + strings.ReplaceAll(lines(text), "\n", "\n  ")
}

// moment prints a time for people, and - for none.
func moment(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// span prints a duration for people: its two largest units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	default:
		return d.Round(time.Millisecond).String()
	}
}

// number prints a number or an id.
func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// outboxOrQueue is the noun for either.
const outboxOrQueue = "outbox or queue"

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if noun == outboxOrQueue {
		return grouped(n) + " outboxes or queues"
	}
	return grouped(n) + " " + noun + "s"
}

// are is a number with its noun, and is or are.
func are(n int, noun string) string {
	if n == 1 {
		return count(n, noun) + " is"
	}
	return count(n, noun) + " are"
}
