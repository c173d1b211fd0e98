package inbox

import (
	"context"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Clients writes messages in transactions of more and more clients at a time.
func Clients() measure.Scenario {
	const each, most = 1_000, 10_000
	return measure.Scenario{
		Name:  "write-clients",
		About: "transactions of one business insert and one message, by the clients that write at a time: how far commits share their way to the disk",
		Axis:  "clients",
		Contenders: measure.Curve([]int{1, 4, 16, 64}, func(ctx context.Context, stage *measure.Stage, clients int) error {
			n := min(each*clients, most)
			return oursWrite(ctx, stage, load.Usual(), clients, stage.Scale(n, n/3))
		}),
	}
}

// Payload writes messages of more and more bytes.
func Payload() measure.Scenario {
	return measure.Scenario{
		Name:  "write-payload",
		About: "the same with 8 clients, by the bytes of a payload of random letters; of large ones fewer",
		Axis:  "payload bytes",
		Contenders: measure.Curve(load.PayloadSizes(), func(ctx context.Context, stage *measure.Stage, size int) error {
			n := load.FewerOf(size, 6_000)
			return oursWrite(ctx, stage, load.Shape{Payload: size, Key: load.Uniform}, writers, stage.Scale(n, n/3))
		}),
	}
}
