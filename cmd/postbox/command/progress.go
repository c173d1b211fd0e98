package command

import (
	"fmt"
	"io"
	"time"
)

const (
	// progressSteps is how many things an action has done before it says how far it has got: a
	// short one does not.
	progressSteps = 100
	// progressPause is the least time between two lines about that, and terminalPause that between
	// two changes of the line of a terminal.
	progressPause = time.Second
	terminalPause = time.Second / 10
)

// clearLine moves the cursor of a terminal to the beginning of its line, and clears the line.
const clearLine = "\r\x1b[K"

// howFar prints how far a long action has got: on a terminal in one line that is written again and
// again, and elsewhere, such as in a log, in a line a second at most.
type howFar struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	last    time.Time // zero before the first text
	written bool      // a line of a terminal that has no end yet
}

func (s *session) howFar() *howFar {
	w := s.cmd.ErrOrStderr()
	return &howFar{w: w, terminal: isTerminal(w), now: time.Now}
}

// say prints the text if so many things are done that it is of use, and unless another one was
// printed just now.
func (h *howFar) say(done int, format string, args ...any) {
	now, pause := h.now(), progressPause
	if h.terminal {
		pause = terminalPause
	}
	if done < progressSteps || now.Sub(h.last) < pause {
		return
	}
	h.last = now
	if h.terminal {
		h.written = true
		fmt.Fprintf(h.w, clearLine+format, args...)
		return
	}
	fmt.Fprintf(h.w, format+"\n", args...)
}

// end removes the line of a terminal, so that the result or an error takes its place.
func (h *howFar) end() {
	if h.written {
		fmt.Fprint(h.w, clearLine)
		h.written = false
	}
}
