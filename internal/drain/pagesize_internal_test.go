package drain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// paged is a reader with pages of 400 messages of up to 1,000 bytes.
func paged() *reader {
	return &reader{core: &core{config: Config{Amounts: Amounts{PageSize: 400, InlineBytes: 1000, Workers: 64, BatchSize: 100}}}}
}

// sized are messages of these many bytes.
func sized(sizes ...int) []*spool.Message {
	messages := make([]*spool.Message, len(sizes))
	for i, size := range sizes {
		messages[i] = &spool.Message{Size: size}
	}
	return messages
}

func TestPageSize_large_payloads_are_read_in_small_pages_of_the_same_bytes(t *testing.T) {
	t.Parallel()
	r := paged()
	usual := pageSize{messages: 400, inline: 1000}
	require.Equal(t, usual, r.pageSize())

	r.adaptPageSize(sized(10, 1001, 4000))
	require.Equal(t, pageSize{messages: 100, inline: 4000}, r.pageSize())
	r.adaptPageSize(nil)
	require.Equal(t, pageSize{messages: 100, inline: 4000}, r.pageSize(), "nothing found says nothing")
	r.adaptPageSize(sized(10, 1000, 4000))
	require.Equal(t, usual, r.pageSize(), "as many messages as that have no large payload")
	r.adaptPageSize(sized(4001, 4001, 4001))
	require.Equal(t, usual, r.pageSize(), "these would not come along either way")
}

func TestPageSize_a_small_page_has_enough_for_workers_and_batches(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *Config){
		"workers":           func(c *Config) { c.Workers = 101 },
		"a batch":           func(c *Config) { c.BatchSize = 101 },
		"a batch over time": func(c *Config) { c.Gather = new(schedule.Gather) },
	} {
		r := paged()
		change(&r.config)
		r.adaptPageSize(sized(2000, 2000))
		require.Equal(t, 400, r.pageSize().messages, name)
	}
}
