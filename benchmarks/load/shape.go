package load

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// What all contenders send, unless it is the very thing that is varied.
const (
	PayloadSize = 256
	Keys        = 1000
)

// When tables are filled, the most messages in one call of a publisher, and the most bytes.
const (
	page      = 1000
	pageBytes = 4 << 20
)

// Shape is what messages look like.
type Shape struct {
	// Payload is its size in bytes.
	Payload int
	// Key returns the ordering key of the message with this number; "" is none.
	Key func(i int) string
}

// Usual is the shape of the messages of all comparisons.
func Usual() Shape { return Shape{Payload: PayloadSize, Key: Uniform} }

// Uniform gives each key its turn.
func Uniform(i int) string { return customer(i % Keys) }

// PayloadSizes are the points of the curves by payload.
func PayloadSizes() []int { return []int{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10} }

// FewerOf returns n, or as many messages of this size as a curve shall write.
func FewerOf(size, n int) int {
	const together = 64 << 20
	return min(n, together/size)
}

// NoKey leaves messages without order.
func NoKey(int) string { return "" }

// OneKey is that of all messages.
func OneKey(int) string { return customer(0) }

// ZipfExponent lets the share of the k-th key fall with the power of k: of 1,000 keys the first has
// nearly a fifth.
const ZipfExponent = 1.1

// Zipf returns some keys far more often than others, and for a number always the same one.
func Zipf(i int) string {
	random := rand.New(rand.NewPCG(uint64(i), 0)) //nolint:gosec // no secret, and never negative
	n := rand.NewZipf(random, ZipfExponent, 1, Keys-1).Uint64()
	return customer(int(n)) //nolint:gosec // below Keys
}

func customer(n int) string { return fmt.Sprint("customer-", n) }

// Messages returns so many, beginning with a number.
func (s Shape) Messages(first, n int) []*message.Message {
	payload := letters(s.Payload)
	batch := make([]*message.Message, n)
	for i := range batch {
		batch[i] = message.NewMessage(postbox.NewMessageID(), payload)
		if key := s.Key(first + i); key != "" {
			batch[i].Metadata.Set(postbox.MetadataOrderingKey, key)
		}
	}
	return batch
}

// letters are random, the same ones each time: a database that compresses large values gains
// nothing.
func letters(n int) []byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	random := rand.New(rand.NewPCG(0, 0)) //nolint:gosec // no secret
	text := make([]byte, n)
	for i := range text {
		text[i] = alphabet[random.IntN(len(alphabet))]
	}
	return text
}

// Fill publishes n messages, page by page.
func (s Shape) Fill(n int, publish func(batch ...*message.Message) error) error {
	size := max(1, min(page, pageBytes/max(1, s.Payload)))
	for first := 0; first < n; first += size {
		if err := publish(s.Messages(first, min(size, n-first))...); err != nil {
			return fmt.Errorf("fill the outbox: %w", err)
		}
	}
	return nil
}

// Deliver measures work on n messages, so many clients at a time. It lets go of each with its work,
// as a router does: a message leads to its context, and that to a transaction, so those that are
// over would be kept in memory, and be looked through by the garbage collector, to the end of the
// run.
func (s Shape) Deliver(
	ctx context.Context, stage *measure.Stage, clients, n int, work func(context.Context, *message.Message) error,
) error {
	list := s.Messages(0, WarmUp*clients+n)
	all := func(part []*message.Message) error {
		return Clients(ctx, len(part), clients, func(ctx context.Context, i int) error {
			msg := part[i]
			part[i] = nil
			return work(ctx, msg)
		})
	}
	warmUp, measured := list[:WarmUp*clients], list[WarmUp*clients:]
	if err := all(warmUp); err != nil {
		return err
	}
	if err := stage.Start(ctx); err != nil {
		return err
	}
	if err := all(measured); err != nil {
		return err
	}
	return stage.Stop(n)
}
