package relay

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// TailRelay drains a backlog that is in the log alone, or in rows.
func TailRelay() measure.Scenario {
	const backlog = 50_000
	return measure.Scenario{
		Name:      "tail-relay",
		About:     "drain 50,000 messages into a publisher that does nothing: messages that are in the log alone, or rows, on a server with wal_level=logical",
		Log:       true,
		MaxRounds: tailRounds,
		Floor:     "rows",
		Contenders: []measure.Contender{
			{Name: "log", Run: func(ctx context.Context, stage *measure.Stage) error {
				return drainLog(ctx, stage, newSink(backlog, 0))
			}},
			{Name: "rows", Run: func(ctx context.Context, stage *measure.Stage) error {
				return ours(backlog, newSink(backlog, 0), forwarder.Config{})(ctx, stage)
			}},
		},
		Targets: []measure.Target{{Name: "tail-relay", Ours: "log", Other: "rows", AtLeast: 1}},
	}
}

// drainLog fills the log and drains it.
func drainLog(ctx context.Context, stage *measure.Stage, to *sink) (err error) {
	reader, drop, err := load.SetUpLog(ctx, stage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	publisher, err := forwarder.NewPublisher(postbox.Database{DB: stage.Setup, Dialect: postbox.PostgreSQL}, forwarder.PublisherConfig{AllowAutocommit: true, Log: true}, nil)
	if err != nil {
		return err
	}
	err = load.Usual().Fill(int(to.want), func(batch ...*message.Message) error { return publisher.Publish(load.Topic, batch...) })
	if err := errors.Join(err, publisher.Close()); err != nil {
		return err
	}
	tail, err := pgtail.NewOutbox(reader)
	if err != nil {
		return err
	}
	return drainOurs(to, forwarder.Config{Tail: tail})(ctx, stage)
}
