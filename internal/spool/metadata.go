package spool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Metadata is stored as JSON, which is readable for people who look into the table. JSON cannot
// contain bytes that are not UTF-8, but Watermill allows them. Then each word is written in base64,
// after this mark, with which no JSON begins.
const base64Mark = 0x00

// EncodeMetadata encodes metadata without loss, whatever bytes its strings contain.
func EncodeMetadata(metadata map[string]string) ([]byte, error) {
	if text, ok := encodePlain(metadata); ok {
		return text, nil
	}
	if validUTF8(metadata) {
		return json.Marshal(metadata)
	}
	words := make([][]byte, 0, 2*len(metadata)) // [][]byte is base64 in JSON
	for key, value := range metadata {
		words = append(words, []byte(key), []byte(value))
	}
	text, err := json.Marshal(words)
	return append([]byte{base64Mark}, text...), err
}

// fewWords is the number of keys that encodePlain sorts without an allocation.
const fewWords = 8

// encodePlain encodes words without special characters, as nearly all metadata is, in the same way
// as [json.Marshal] but without reflection. It reports false for anything else.
func encodePlain(metadata map[string]string) ([]byte, bool) {
	keys, size := make([]string, 0, fewWords), len("{}")
	for key, value := range metadata {
		if !isPlain(key) || !isPlain(value) {
			return nil, false
		}
		keys, size = append(keys, key), size+len(`"":"",`)+len(key)+len(value)
	}
	slices.Sort(keys)
	text := append(make([]byte, 0, size), '{')
	for i, key := range keys {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, '"'), key...), `":"`...)
		text = append(append(text, metadata[key]...), '"')
	}
	return append(text, '}'), true
}

// isPlain reports whether JSON contains a word unchanged.
func isPlain(word string) bool {
	for i := range len(word) {
		switch c := word[i]; {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

func validUTF8(metadata map[string]string) bool {
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return false
		}
	}
	return true
}

// DecodeMetadata decodes the result of EncodeMetadata. It never returns a nil map with a nil error.
func DecodeMetadata(stored []byte) (map[string]string, error) {
	if len(stored) > 0 && stored[0] == base64Mark {
		var words [][]byte
		if err := json.Unmarshal(stored[1:], &words); err != nil {
			return nil, fmt.Errorf("decode metadata: %w", err)
		}
		if len(words)%2 != 0 {
			return nil, fmt.Errorf("decode metadata: %d words do not form pairs", len(words))
		}
		metadata := make(map[string]string, len(words)/2)
		for i := 0; i < len(words); i += 2 {
			metadata[string(words[i])] = string(words[i+1])
		}
		return metadata, nil
	}
	if metadata, ok := decodePlain(string(stored)); ok {
		return metadata, nil
	}
	metadata := map[string]string{}
	if len(bytes.TrimSpace(stored)) == 0 {
		return metadata, nil
	}
	if err := json.Unmarshal(stored, &metadata); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	if metadata == nil { // a stored null
		metadata = map[string]string{}
	}
	return metadata, nil
}

// decodePlain decodes words without special characters, as nearly all metadata is, with fewer
// allocations than the general decoder. It reports false for anything else.
func decodePlain(text string) (map[string]string, bool) {
	rest, ok := strings.CutPrefix(text, "{")
	if !ok || !utf8.ValidString(text) {
		return nil, false
	}
	metadata := map[string]string{}
	if rest == "}" {
		return metadata, true
	}
	for {
		var key, value string
		if key, rest, ok = cutWord(rest); !ok || !strings.HasPrefix(rest, ":") {
			return nil, false
		}
		if value, rest, ok = cutWord(rest[1:]); !ok {
			return nil, false
		}
		metadata[key] = value
		if rest == "}" {
			return metadata, true
		}
		if rest, ok = strings.CutPrefix(rest, ","); !ok {
			return nil, false
		}
	}
}

// cutWord cuts a quoted word from the beginning of a text, if it contains no escapes.
func cutWord(text string) (word, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", false
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[1:i], text[i+1:], true
		case c == '\\' || c < ' ':
			return "", "", false
		}
	}
	return "", "", false
}

// maxErrorText limits the bytes that one failure keeps: enough for an error and the top of a stack.
const maxErrorText = 4096

// ErrorText returns an error's text in a form that a text column of any database can store. No
// error has a text too: a failure is recorded even if nothing is known of it.
func ErrorText(err error) string {
	if err == nil {
		return "no error was given"
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "")
	}
	return text
}
