package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// confirm asks before something that cannot be undone. The question names it in full.
func (s *session) confirm(question string) error {
	if s.yes {
		return nil
	}
	refuse := func() error {
		return usagef("%s This needs a confirmation, and the standard input is not a terminal: add --yes", question)
	}
	if !s.options.Interactive() {
		return refuse()
	}
	fmt.Fprintf(s.cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(s.cmd.InOrStdin()).ReadString('\n')
	if errors.Is(err, io.EOF) && answer == "" { // such as /dev/null, which looks like a terminal
		return refuse()
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
