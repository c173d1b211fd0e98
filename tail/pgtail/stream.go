package pgtail

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

const (
	// statusInterval is the pause between two confirmations of the position, if there is something
	// to confirm or not.
	statusInterval = time.Second
	// silence is how long the server may send nothing, although each status that follows a silence
	// asks for an answer.
	silence = 20 * time.Second
	// hearInterval is the pause between two times at which feeds are told that the server lives.
	hearInterval = statusInterval / 4
	// binaryVersion is the first version of PostgreSQL that sends values in binary form.
	binaryVersion = 14
)

// start makes the server send the log.
func (s *session) start(ctx context.Context, command string) error {
	s.conn.Frontend().Send(&pgproto3.Query{String: command})
	if err := s.conn.Frontend().Flush(); err != nil {
		return fmt.Errorf("start to read the log: %w", err)
	}
	for {
		message, err := s.conn.ReceiveMessage(ctx)
		if err != nil {
			return explain(fmt.Errorf("start to read the log: %w", err))
		}
		switch m := message.(type) {
		case *pgproto3.CopyBothResponse:
			return nil
		case *pgproto3.ErrorResponse:
			return explain(fmt.Errorf("start to read the log: %w", pgconn.ErrorResponseToPgError(m)))
		}
	}
}

// version returns the major version of the server, 0 if it is unknown.
func (s *session) version() int {
	major, _, _ := strings.Cut(s.conn.ParameterStatus("server_version"), ".")
	n, err := strconv.Atoi(strings.TrimRightFunc(major, func(r rune) bool { return r < '0' || r > '9' }))
	if err != nil {
		return 0
	}
	return n
}

// stream is the state of a log that is read.
type stream struct {
	*session

	confirmed uint64 // the position up to which the server need not keep the log
	sent      time.Time
	heard     time.Time
	reached   *atomic.Uint64      // the position up to which the server has sent everything, as it says
	hear      func(now time.Time) // is told now and then that the server has sent something
	told      time.Time           // when it was told last
}

func (s *session) stream(hear func(now time.Time)) *stream {
	now := time.Now()
	return &stream{session: s, sent: now, heard: now, reached: &s.reached, hear: hear}
}

// receive calls take with what the server sends, until the connection fails, take fails or ctx
// ends.
func (s *stream) receive(ctx context.Context, take func(data []byte) error) error {
	interrupt := context.AfterFunc(ctx, func() { _ = s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) })
	defer interrupt()
	unbound := context.WithoutCancel(ctx)
	for {
		if err := s.wait(ctx); err != nil {
			return err
		}
		message, err := s.conn.ReceiveMessage(unbound) // ctx is heard through the deadline, without a goroutine for each message
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err != nil:
			return explain(fmt.Errorf("read the log: %w", err))
		}
		switch m := message.(type) {
		case *pgproto3.CopyData:
			if s.heard = time.Now(); s.heard.Sub(s.told) >= hearInterval {
				s.told = s.heard
				s.hear(s.heard)
			}
			if err := take(m.Data); err != nil {
				return err
			}
		case *pgproto3.ErrorResponse:
			return explain(fmt.Errorf("read the log: %w", pgconn.ErrorResponseToPgError(m)))
		case *pgproto3.CopyDone:
			return errors.New("read the log: the server has ended the stream")
		}
	}
}

// wait sends a status if it is time, and sets until when to wait for the next message.
func (s *stream) wait(ctx context.Context) error {
	now := time.Now()
	if now.Sub(s.sent) >= statusInterval {
		if now.Sub(s.heard) > silence {
			return fmt.Errorf("read the log: the server has sent nothing for %s", silence)
		}
		if err := s.status(now); err != nil {
			return err
		}
		if err := s.conn.Conn().SetReadDeadline(now.Add(statusInterval)); err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
	}
	return ctx.Err() // after the deadline was set, which the end of ctx also sets
}

// pause waits for a token, at most until the next status, and sends that if it is time. What the
// server sends is not read meanwhile.
func (s *stream) pause(ctx context.Context, token <-chan struct{}) error {
	timer := time.NewTimer(statusInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-token:
	case <-timer.C:
	}
	s.heard = time.Now()
	return s.wait(ctx)
}

// during calls do, and tells the server meanwhile that this process lives: it ends the connection
// of one that says nothing for senderTimeout, and a statement may take longer.
func (s *stream) during(ctx context.Context, do func(ctx context.Context) error) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = do(within)
	}()
	for {
		lost := s.pause(ctx, ended)
		select {
		case <-ended:
			return cmp.Or(err, lost)
		default:
		}
		if lost != nil {
			cancel()
			<-ended
			return lost // err is that of a statement that was cancelled for this
		}
	}
}

// content returns what a message of the server has of the log; nil if it has nothing.
func content(data []byte) []byte {
	const header = 25 // kind, start, end and time
	if len(data) < header || data[0] != 'w' {
		return nil
	}
	return data[header:]
}

// keepalive returns up to where the server has sent everything, if the message says that, and
// answers if it asks for it.
func (s *stream) keepalive(data []byte, received func(end uint64)) error {
	const size = 18 // kind, end, time and whether an answer is wanted
	if len(data) != size || data[0] != 'k' {
		return nil
	}
	end := binary.BigEndian.Uint64(data[1:])
	s.reached.Store(end)
	received(end)
	if data[size-1] == 1 {
		return s.status(s.heard)
	}
	return nil
}

// insertStream reads inserts into the table of messages.
type insertStream struct {
	*stream

	decoder *tail.Decoder
	change  func(tail.Change)
	check   func(ctx context.Context) error // looks whether the log has had all inserts, and has them from now on
}

// take takes in one message of the server. A position is confirmed when it was received.
func (s *insertStream) take(ctx context.Context, data []byte) error {
	if part := content(data); part != nil {
		event, change, end, err := s.decoder.Decode(part)
		switch {
		case err != nil:
			return err
		case event == tail.Changed:
			s.change(change)
		case event == tail.Described:
			return s.during(ctx, s.check)
		case event == tail.Committed:
			s.confirmed = max(s.confirmed, end)
		}
		return nil
	}
	return s.keepalive(data, func(end uint64) {
		if !s.decoder.Within() { // the server has sent everything up to here, so the log of other databases need not be kept
			s.confirmed = max(s.confirmed, end)
		}
	})
}

// statusSize is the size of a status: its kind, three positions, a time, and whether an answer is
// wanted.
const statusSize = 1 + 3*8 + 8 + 1

// microsecondsTo2000 is the time from 1970 to PostgreSQL's first year.
const microsecondsTo2000 = 946_684_800_000_000

// status tells the server up to where the log was received, and up to where it need not keep it any
// longer.
func (s *stream) status(now time.Time) error {
	s.sent = now
	received := max(s.reached.Load(), s.confirmed)
	data := append(make([]byte, 0, statusSize), 'r')
	for _, position := range []uint64{received, s.confirmed, s.confirmed} { // written, flushed and applied
		data = binary.BigEndian.AppendUint64(data, position)
	}
	data = binary.BigEndian.AppendUint64(data, uint64(now.UnixMicro()-microsecondsTo2000)) //nolint:gosec // later than 2000
	answer := byte(0)
	if now.Sub(s.heard) >= statusInterval/2 {
		answer = 1
	}
	encoded, err := (&pgproto3.CopyData{Data: append(data, answer)}).Encode(nil)
	if err != nil {
		return fmt.Errorf("confirm the position in the log: %w", err)
	}
	if err := s.conn.Frontend().SendUnbufferedEncodedCopyData(encoded); err != nil {
		return fmt.Errorf("confirm the position in the log: %w", err)
	}
	return nil
}
