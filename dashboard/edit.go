package dashboard

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
)

const (
	// maxEdit is the largest payload that can be edited in a form, in bytes.
	maxEdit = 256 << 10
	// maxEditForm bounds what the form may send: each byte of a payload can take three in it, and
	// metadata comes with it.
	maxEditForm = 4 << 20
)

// editView is the form in which a user changes a dead letter.
type editView struct {
	*admin.DeadLetter

	Behind    string
	Payload   string
	Editable  bool // the payload is a text that a form returns as it was
	Metadata  string
	Run, Back link
}

func (h *Handler) edit(ctx context.Context, q *request) (any, error) {
	id, err := q.id()
	if err != nil {
		return nil, err
	}
	letter, err := h.admin.DeadLetter(ctx, id)
	if err != nil {
		return nil, err
	}
	view := editView{
		DeadLetter: letter, Editable: h.isEditable(q, letter), Metadata: metadataText(letter.Metadata), Run: to("edit-run", "id", idText(id)), Back: toLetter(id),
	}
	if view.Behind, err = h.behind(ctx, id); err != nil {
		return nil, err
	}
	if view.Editable {
		view.Payload = string(letter.Payload)
	}
	return view, nil
}

// isEditable says whether a form returns the payload as it was: a browser changes line breaks and
// bytes that are not UTF-8. A payload that FormatPayload hides is not shown in a form either.
func (h *Handler) isEditable(q *request, letter *admin.DeadLetter) bool {
	params := paramsOf(letter)
	params.Access = q.access
	if len(letter.Payload) > maxEdit || h.hides(params) {
		return false
	}
	text := string(letter.Payload)
	return lines(text) == text && !strings.Contains(text, "\r")
}

// editAndRequeue changes only what the user has changed.
func (h *Handler) editAndRequeue(ctx context.Context, q *request) (link, error) {
	id, err := q.id()
	if err != nil {
		return link{}, err
	}
	letter, err := h.admin.DeadLetter(ctx, id)
	if err != nil {
		return link{}, err
	}
	edit := q.again()
	if q.PostForm.Has("payload") && h.isEditable(q, letter) {
		payload := []byte(withoutReturns(q.PostForm.Get("payload")))
		if !bytes.Equal(payload, letter.Payload) {
			edit.Payload = payload
		}
	}
	if q.PostForm.Has("metadata") {
		metadata, err := parseMetadata(withoutReturns(q.PostForm.Get("metadata")))
		if err != nil {
			return link{}, err
		}
		if letter.Metadata == nil || !maps.Equal(metadata, letter.Metadata) {
			edit.Metadata = metadata
		}
	}
	if edit.Payload == nil && edit.Metadata == nil {
		return link{}, badf("nothing was changed: change the payload or the metadata, or requeue the dead letter as it is")
	}
	_, err = h.admin.Requeue(ctx, admin.Filter{ID: id}, edit)
	return to(lettersPage, noticeField, "edited"), err
}

// withoutReturns undoes what browsers do to line breaks.
func withoutReturns(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// metadataText writes metadata as lines of name=value, in the notation.
func metadataText(metadata message.Metadata) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		b.WriteString(strings.ReplaceAll(escaped(name), "=", `\x3d`) + "=" + escaped(metadata[name]) + "\n")
	}
	return b.String()
}

// parseMetadata reads what metadataText writes.
func parseMetadata(text string) (message.Metadata, error) {
	metadata := message.Metadata{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if !found {
			return nil, badf("metadata: the line %q is not of the form name=value", short(line))
		}
		metadata[unescaped(name)] = unescaped(value)
	}
	return metadata, nil
}
