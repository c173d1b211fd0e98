package drain

import (
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// largeShare relates a page of large payloads to a usual page: it has a quarter of the messages,
// and its payloads may be four times as large.
const largeShare = 4

// pageSize is the size of one read. Payloads above its inline bytes are not read with the page.
// They are loaded one by one, each by a statement of its own.
type pageSize struct {
	messages, inline int
}

// pageSize returns the size of the next read. A page has the same maximum number of bytes whatever
// its messages are.
func (r *reader) pageSize() pageSize {
	inline := r.config.inline()
	if r.last.large {
		return pageSize{messages: r.config.PageSize / largeShare, inline: inline * largeShare}
	}
	return pageSize{messages: r.config.PageSize, inline: inline}
}

// inline returns the maximum payload that is read with a page of the usual length. A page has at
// most half of the bytes that may be in flight.
func (c Config) inline() int {
	if c.MaxBytes == 0 {
		return c.InlineBytes
	}
	return min(c.InlineBytes, c.MaxBytes/(2*max(c.PageSize, 1)))
}

// adaptPageSize makes the next pages small pages of large payloads, if that saves a statement for
// most of the messages that were found. Fewer messages are in memory then, but they must still be
// enough for all workers and for a batch. A batch that is gathered may need as many messages as fit
// into memory, so then pages keep their size.
func (r *reader) adaptPageSize(found []*spool.Message) {
	if len(found) == 0 {
		return
	}
	large, inline := 0, r.config.inline()
	for _, m := range found {
		if m.Size > inline && m.Size <= inline*largeShare {
			large++
		}
	}
	enough := r.config.PageSize/largeShare >= max(r.config.Workers, r.config.BatchSize)
	r.last.large = large > len(found)/2 && enough && r.config.Gather == nil
}

// asksFor returns the number of messages that the next read asks for. It is small when a topic is
// read again that was left out: that one alone could fill the page, and most of its messages would
// have to make room again.
func (r *reader) asksFor(most int) int {
	if r.leftOut.readmits {
		r.leftOut.readmits = false
		return max(min(most, r.pageSize().messages/schedule.LimitedShare), 1)
	}
	return most
}
