package operatorsql

import "encoding/json"

// bounds are numbers with names, as one argument.
type bounds map[string]int64

// list writes them.
func (b bounds) list() string {
	text, err := json.Marshal(b)
	if err != nil {
		panic("operatorsql: numbers have no JSON: " + err.Error())
	}
	return string(text)
}
