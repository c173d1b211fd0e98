package admin

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestShape_takes_out_what_differs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                          "",
		"card declined":             "card declined",
		"order 4711: card declined": "order #: card declined",
		"order ord_8f3a2b is gone":  "order # is gone",
		"user 0198c2e1-7a3b-7c00-8000-0123456789ab not found": "user # not found",
		"hash 0xDEADBEEF0 differs":                            "hash # differs",
		`no customer "Ada \"the first\"" in 'Paris'`:          `no customer "…" in '…'`,
		"can't reach the user's host 10.0.0.1:5432":           "can't reach the user's host #:#",
		"at 2026-01-02T03:04:05.678Z\n\tin handler":           "at #:#:# in handler",
		"an open \"quote of 4712":                             "an open \"quote of #",
		"\xff\x00 bytes":                                      "\uFFFD bytes",
		"dial tcp: i/o timeout.":                              "dial tcp: i/o timeout.",
	} {
		require.Equal(t, want, shapeText(text), text)
	}
	require.LessOrEqual(t, len(shapeText(strings.Repeat("é ", 5000))), 200)
}

// A group has one name, however it is read, and it is bounded.
func FuzzShape(f *testing.F) {
	for _, seed := range []string{"", "order 12 'x' \"y\" `z`", "a1'x'", `"\'x'"`, "\xff…#", "a-1.b_2 \t\n", strings.Repeat("'é", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shape := shapeText(text)
		require.LessOrEqual(t, len(shape), 200)
		require.True(t, utf8.ValidString(shape))
		require.Equal(t, shape, shapeText(shape))
	})
}
