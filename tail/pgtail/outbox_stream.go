package pgtail

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

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
	reached uint64 // the position that the server has reached
}

// take takes in one message of the server. It waits while the memory is full.
func (s *emittedStream) take(ctx context.Context, data []byte) error {
	if part := content(data); part != nil {
		s.reach(binary.BigEndian.Uint64(data[9:]))
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
		s.reach(end)
		if !s.decoder.Within() {
			s.intake.passedBy(end)
		}
	})
}

// reach confirms a position if it is time. The row with the position must not be lost in a failover that keeps the
// confirmed position, so the server must have reached the place in the log where that row was committed.
func (s *emittedStream) reach(end uint64) {
	s.reached = max(s.reached, end)
	s.confirmed = max(s.confirmed, s.intake.confirmable(s.reached))
}

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
		timer := time.NewTimer(statusInterval)
		select {
		case <-ctx.Done():
		case <-s.intake.room:
		case <-timer.C:
		}
		timer.Stop()
		s.heard = time.Now() // what the server sends is not read meanwhile
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
