package pgtail

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// emittedStream reads messages that are in the log alone.
type emittedStream struct {
	*stream

	decoder *tail.EmittedDecoder
	change  func(spool int64)
	intake  *intake
	logger  watermill.LoggerAdapter
}

// take takes in one message of the server. It waits while the memory is full.
func (s *emittedStream) take(ctx context.Context, data []byte) error {
	s.confirm()
	if part := content(data); part != nil {
		event, piece, end, err := s.decoder.Decode(part)
		switch {
		case err != nil:
			return err
		case event == tail.Begin:
			s.intake.begin(commit{final: s.decoder.Final(), at: s.decoder.Committed()})
		case event == tail.Insert:
			err = s.decode(piece)
		case event == tail.Change:
			s.change(piece.Spool)
		case event == tail.Commit:
			s.intake.end(end)
		}
		if err != nil {
			return err
		}
		return s.waitForRoom(ctx)
	}
	return s.keepalive(data, func(end uint64) {
		if !s.decoder.Within() {
			s.intake.passedBy(end)
		}
	})
}

// confirm lets the next status confirm what the keeper has allowed.
func (s *emittedStream) confirm() { s.confirmed = max(s.confirmed, s.intake.confirmable()) }

func (s *emittedStream) decode(piece tail.Piece) error {
	emitted, err := tail.DecodeEmitted(piece.Content, piece.Committed)
	switch {
	case errors.Is(err, tail.ErrEmittedVersion):
		return &setupError{what: "the log cannot be read", err: err}
	case err != nil:
		s.logger.Error("Postbox leaves out a message of the log that no publisher can have written", err, nil)
		return nil
	}
	s.intake.add(piece.Transaction, emitted)
	return nil
}

// waitForRoom waits until there is room for more messages, and tells the server meanwhile that this process lives.
func (s *emittedStream) waitForRoom(ctx context.Context) error {
	for s.intake.full() {
		if err := s.pause(ctx, s.intake.room); err != nil {
			return err
		}
		s.confirm()
	}
	return nil
}
