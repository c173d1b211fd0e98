package spool

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Whatever strings Watermill accepts survive, NUL and bytes that are no text included.
func FuzzMetadata_roundtrip(f *testing.F) {
	f.Add("", "", "a", "b")
	f.Add("key", "value", "\x00", "\xff\xfe")
	f.Add("b", "~ \x7f'/", "a", "Ordering")
	f.Add("\u2028<&>", "\uFFFD", "\ud7ff", "\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 string) {
		metadata := map[string]string{key1: value1, key2: value2}
		stored, err := EncodeMetadata(metadata)
		require.NoError(t, err)
		read, err := DecodeMetadata(stored)
		require.NoError(t, err)
		require.Equal(t, metadata, read)
		if plain, ok := encodePlain(metadata); ok {
			general, err := json.Marshal(metadata)
			require.NoError(t, err)
			require.Equal(t, string(general), string(plain), "the quick way writes what the general one writes")
		}
	})
}

// What stands in the table may be anything: an error is an answer, and what can be read can be
// written again.
func FuzzMetadata_decode(f *testing.F) {
	for _, stored := range []string{
		``, ` `, `{}`, `null`, `[]`, `{"a":"b"}`, `{"a":1}`, `{"a":null}`, `{"a":"b","c":""}`, `{"a":"b",}`, `{"a":"b"`, `{"a`, `{"a":`, `{"a":"b"}x`, `{"a":"\n"}`, `{"a":"b","a":"c"}`, "\x00", "\x00[]", "\x00null", "\x00[\"YQ==\"]", "\x00[\"YQ==\",\"/w==\"]", "{\"\xff\":\"\"}",
	} {
		f.Add([]byte(stored))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		metadata, err := DecodeMetadata(stored)
		if err != nil {
			return
		}
		require.NotNil(t, metadata)
		again, err := EncodeMetadata(metadata)
		require.NoError(t, err)
		read, err := DecodeMetadata(again)
		require.NoError(t, err)
		require.Equal(t, metadata, read)
		if plain, ok := decodePlain(string(stored)); ok {
			var general map[string]string
			require.NoError(t, json.Unmarshal(stored, &general), "the quick way takes nothing else than the general one")
			require.Equal(t, general, plain)
		}
	})
}

// An error's text goes into a text column of any database, whatever it holds.
func FuzzErrorText(f *testing.F) {
	f.Add("")
	f.Add("\x00\xff")
	f.Add(string(make([]byte, maxErrorText+1)))
	f.Fuzz(func(t *testing.T, text string) {
		kept := ErrorText(errors.New(text))
		require.True(t, utf8.ValidString(kept))
		require.NotContains(t, kept, "\x00")
		require.LessOrEqual(t, len(kept), maxErrorText)
	})
}

// A delay is read or refused, and never one that lies in the past of its message.
func FuzzDraft_SetDelay(f *testing.F) {
	f.Add("", "")
	f.Add("1h", "")
	f.Add("-1h", "")
	f.Add("9223372036854775807ns", "")
	f.Add("", "2026-11-21T12:00:00Z")
	f.Add("", "0000-01-01T00:00:00+24:00")
	f.Add("x", "y")
	f.Fuzz(func(t *testing.T, delayedFor, delayedUntil string) {
		draft := Draft{}
		err := draft.SetDelay(message.Metadata{delay.DelayedForKey: delayedFor, delay.DelayedUntilKey: delayedUntil})
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, draft.Delay, time.Duration(0))
	})
}
