package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// confirm asks before something that cannot be undone. The question names it in full, and what is
// chosen is added, with where that is.
func (s *session) confirm(question string, chosen ...string) error {
	if s.yes {
		return nil
	}
	place := append([]string{s.where()}, chosen...)
	question = "On " + strings.Join(place, ", ") + ":\n" + question
	const refusal = "This needs a confirmation, and the standard input is not a terminal: add --yes"
	if !s.options.Interactive() {
		return usagef("%s %s", question, refusal)
	}
	fmt.Fprintf(s.cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := s.answer()
	if s.cmd.Context().Err() != nil {
		return stoppedf("interrupted, and nothing was changed")
	}
	if errors.Is(err, io.EOF) && answer == "" { // such as /dev/null, which looks like a terminal
		fmt.Fprintln(s.cmd.ErrOrStderr()) // ends the line of the question
		return usage(errors.New(refusal))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return stoppedf("not confirmed, and nothing was changed")
	}
}

// answer reads a line, until the operator interrupts the command.
func (s *session) answer() (string, error) {
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	input := s.cmd.InOrStdin()
	go func() { // it cannot be interrupted, and ends with the program
		text, err := bufio.NewReader(input).ReadString('\n')
		read <- line{text, err}
	}()
	select {
	case <-s.cmd.Context().Done():
		return "", s.cmd.Context().Err()
	case got := <-read:
		return got.text, got.err
	}
}
