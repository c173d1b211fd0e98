package drain

import (
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// largeShare is what a page of large payloads has of the messages, and how many times as large they may be.
const largeShare = 4

// pageSize is how much one read asks for. Payloads that are larger than its inline bytes do not come along and are
// loaded one by one, each by a statement of its own.
type pageSize struct {
	messages, inline int
}

// pageSize returns what to ask for, so that a page has the same bytes at most whatever its messages are like.
func (d *Drainer) pageSize() pageSize {
	inline := d.inline()
	if d.large {
		return pageSize{messages: d.config.PageSize / largeShare, inline: inline * largeShare}
	}
	return pageSize{messages: d.config.PageSize, inline: inline}
}

// inline is the largest payload that comes with a page of the usual length. A page has at most half of what may be in flight.
func (d *Drainer) inline() int {
	if d.config.MaxBytes == 0 {
		return d.config.InlineBytes
	}
	return min(d.config.InlineBytes, d.config.MaxBytes/(2*max(d.config.PageSize, 1)))
}

// adaptPageSize makes the next pages small ones of large payloads, where that spares most of the messages that were found a
// statement. Fewer are in memory then, so there must still be enough for all workers, and for a batch: one that is
// gathered may need all that fit.
func (d *Drainer) adaptPageSize(found []*spool.Message) {
	if len(found) == 0 {
		return
	}
	large, inline := 0, d.inline()
	for _, m := range found {
		if m.Size > inline && m.Size <= inline*largeShare {
			large++
		}
	}
	enough := d.config.PageSize/largeShare >= max(d.config.Workers, d.config.BatchSize)
	d.large = large > len(found)/2 && enough && d.config.Gather == nil
}
