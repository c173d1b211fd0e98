package dashboard

import (
	"regexp"
	"strconv"
	"strings"
)

// plainWord matches words that a shell takes as they are.
var plainWord = regexp.MustCompile(`^[\pL\pN_./:@%+,=-]+$`)

// commandLine is a command of the program postbox, to be pasted into a shell.
func commandLine(words ...string) string {
	quoted := []string{"postbox"}
	for _, word := range words {
		quoted = append(quoted, shellWord(word))
	}
	return strings.Join(quoted, " ")
}

// shellWord writes a word, which the program reads with escape sequences if it begins with a
// quotation mark.
func shellWord(word string) string {
	if !isPlain(word) || strings.HasPrefix(word, `"`) {
		word = strconv.Quote(word)
	}
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
