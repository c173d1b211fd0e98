package dashboard

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

// What a page shows of a message at most.
const (
	maxText     = 64 << 10 // bytes of a payload, formatted
	maxHex      = 4 << 10  // bytes of a payload that are written as hexadecimal digits, which take 5 times the room
	maxMetadata = 100      // entries
	maxValue    = 2 << 10  // bytes of an entry, or of an error
)

// content is what a message or a dead letter has in it, made ready for a page.
type content struct {
	// Format says how Text shows the payload, and Cut that it is only its beginning.
	Format   string
	Text     string
	Cut      bool
	Length   int // of the payload, in bytes
	Download bool
	Whole    link

	Metadata     []fact
	MoreMetadata int
	// Unreadable is set if the metadata could not be decoded.
	Unreadable bool
	// Path is how the message came about, oldest first; PathProblem says why it cannot be read.
	Path          []postbox.Hop
	PathProblem   string
	Correlation   string
	CausedBy      string
	HasCausations bool
}

func (h *Handler) content(access Access, params PayloadParams, id string) content {
	params.Access = access
	c := content{Length: len(params.Payload), Unreadable: params.Metadata == nil}
	formatted := false
	if h.config.FormatPayload != nil {
		var text string
		if text, formatted = h.formatted(params); formatted {
			c.Format = "formatted"
			c.Text, c.Cut = cut(text, maxText)
			c.Text = lines(c.Text)
		}
	}
	if !formatted {
		c.Download = true
		c.Format, c.Text, c.Cut = shown(params.Payload)
	}
	c.addMetadata(params.Metadata)
	c.addCausation(params.Metadata, id)
	return c
}

// hides says that the payload must not be sent as it is.
func (h *Handler) hides(params PayloadParams) bool {
	if h.config.FormatPayload == nil {
		return false
	}
	_, formatted := h.formatted(params)
	return formatted
}

// formatted calls the function of the user, which may panic: then nothing of the payload is shown,
// since the function may be there to hide parts of it.
func (h *Handler) formatted(params PayloadParams) (text string, ok bool) {
	defer func() {
		if value := recover(); value != nil {
			h.logger.Error("FormatPayload panicked", fmt.Errorf("panic: %v", value), watermill.LogFields{"topic": params.Topic})
			text, ok = "The payload is not shown: FormatPayload panicked, and the log says why.", true
		}
	}()
	return h.config.FormatPayload(params)
}

// shown formats a payload by what it looks like.
func shown(payload []byte) (format, text string, isCut bool) {
	if payload == nil {
		return "none", "", false
	}
	if len(payload) == 0 {
		return "empty", "", false
	}
	if indented, complete, ok := indentJSON(payload, maxText); ok {
		return "JSON", lines(indented), !complete
	}
	beginning, isCut := cut(string(payload[:min(len(payload), maxText+utf8.UTFMax)]), maxText)
	if isText(beginning) {
		return "text", lines(beginning), isCut
	}
	return "hexadecimal", hex.Dump(payload[:min(len(payload), maxHex)]), len(payload) > maxHex
}

// isText says whether bytes are a text with a few other characters at most.
func isText(text string) bool {
	odd := 0
	for _, r := range text {
		if r == utf8.RuneError {
			return false
		}
		if !strconv.IsPrint(r) && r != '\n' && r != '\r' && r != '\t' {
			odd++
		}
	}
	return odd*20 <= len(text)
}

func (c *content) addMetadata(metadata message.Metadata) {
	names := slices.Sorted(maps.Keys(metadata))
	if len(names) > maxMetadata {
		c.MoreMetadata = len(names) - maxMetadata
		names = names[:maxMetadata]
	}
	for _, name := range names {
		value, isCut := cut(metadata[name], maxValue)
		if strings.Contains(value, "\n") {
			value = lines(value)
		} else {
			value = visible(value) // as the key is shown, which is one of the values
		}
		if isCut {
			value += fmt.Sprintf("… (%s)", byteSize(len(metadata[name])))
		}
		c.Metadata = append(c.Metadata, fact{short(name), value})
	}
}

// addCausation reads how the message came about from its metadata.
func (c *content) addCausation(metadata message.Metadata, id string) {
	c.Correlation, c.CausedBy = metadata.Get(postbox.MetadataCorrelationID), metadata.Get(postbox.MetadataCausationID)
	c.HasCausations = c.Correlation != "" || c.CausedBy != "" || metadata.Get(postbox.MetadataCausationPath) != ""
	read := message.NewMessage(id, nil)
	read.Metadata = metadata
	causation, err := postbox.CausationOf(read, postbox.Hop{})
	if err != nil {
		c.PathProblem = err.Error()
		return
	}
	c.Path = causation.Path[:len(causation.Path)-1] // without the hop that handles it, which is unknown
}

// attempts is a number of attempts of the settings.
func attempts(n int) string {
	if n == -1 {
		return "no limit"
	}
	return number(n)
}

func idText(id int64) string { return strconv.FormatInt(id, 10) }

// failureView is a failed attempt on a page.
type failureView struct {
	admin.Failure
	Text string
}

// failuresOf are the failures, the latest first.
func failuresOf(failures []admin.Failure) []failureView {
	views := make([]failureView, len(failures))
	for i, failure := range failures {
		text, isCut := cut(failure.Error, 2*maxValue)
		text = saidLines(text)
		if isCut {
			text += "…"
		}
		views[len(failures)-1-i] = failureView{failure, text}
	}
	return views
}
