package relay

import (
	"context"
	"time"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// Payload drains messages of more and more bytes.
func Payload() measure.Scenario {
	return measure.Scenario{
		Name:  "relay-payload",
		About: "one forwarder drains messages of random letters into a publisher that does nothing, by the bytes of a payload; of large ones fewer",
		Axis:  "payload bytes",
		Contenders: measure.Curve(load.PayloadSizes(), func(ctx context.Context, stage *measure.Stage, size int) error {
			n := some(stage, load.FewerOf(size, 30_000))
			return oursShaped(load.Shape{Payload: size, Key: load.Uniform}, n, newSink(n, 0), forwarder.Config{})(ctx, stage)
		}),
	}
}

// Keys drains messages whose keys are more or less even, into a publisher that does nothing.
func Keys() measure.Scenario {
	return measure.Scenario{
		Name:       "relay-keys",
		About:      "one forwarder drains 30,000 messages into a publisher that does nothing, by how their keys are spread",
		Contenders: skews(0, 30_000, 30_000, 30_000),
	}
}

// KeysSlowly does so with a publisher that takes 1 ms a call, as that of a broker nearby.
func KeysSlowly() measure.Scenario {
	return measure.Scenario{
		Name:       "relay-keys-1ms",
		About:      "the same with a publisher that takes 1 ms, 64 calls at a time and one of each key; fewer messages where they wait for others of their key",
		Contenders: skews(time.Millisecond, 20_000, 10_000, 1_500),
	}
}

// skews are drains of so many messages whose keys are even, uneven, or the same.
func skews(takes time.Duration, even, uneven, same int) []measure.Contender {
	drain := func(n int, key func(int) string) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error {
			n := some(stage, n)
			shape := load.Shape{Payload: load.PayloadSize, Key: key}
			return oursShaped(shape, n, newSink(n, takes), forwarder.Config{})(ctx, stage)
		}
	}
	return []measure.Contender{
		{Name: "no-key", Run: drain(even, load.NoKey)},
		{Name: "1000-keys", Run: drain(even, load.Uniform)},
		{Name: "zipf", Run: drain(uneven, load.Zipf)},
		{Name: "one-key", Run: drain(same, load.OneKey)},
	}
}

// some is n, or the third part of it in a quick run.
func some(stage *measure.Stage, n int) int { return stage.Scale(n, n/3) }
