package dialect

import "strconv"

// arrayText is an array in PostgreSQL's text form, to which items are added one by one. A driver
// would write it too, but pgx takes only a string as it is: the text of a Valuer it parses and
// encodes again, which took half of the time of an insert.
type arrayText []byte

// newArrayText returns an empty array with room for so many numbers.
func newArrayText(items int) arrayText {
	const digits = 6 // most numbers are sizes and places
	return make(arrayText, 0, len("{}")+digits*items)
}

func (a *arrayText) begin() {
	if len(*a) == 0 {
		*a = append(*a, '{')
	} else {
		*a = append(*a, ',')
	}
}

func (a *arrayText) addNumber(n int64) {
	a.begin()
	*a = strconv.AppendInt(*a, n, 10)
}

// addNullable adds a number, or NULL for nil.
func (a *arrayText) addNullable(n *int64) {
	if n != nil {
		a.addNumber(*n)
		return
	}
	a.begin()
	*a = append(*a, "NULL"...)
}

func (a *arrayText) addWord(word string) {
	a.begin()
	*a = append(*a, '"')
	for i := range len(word) {
		if c := word[i]; c == '"' || c == '\\' {
			*a = append(*a, '\\')
		}
		*a = append(*a, word[i])
	}
	*a = append(*a, '"')
}

// String returns the array with all items that were added.
func (a arrayText) String() string {
	if len(a) == 0 {
		return "{}"
	}
	return string(append(a, '}'))
}
