package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"

	"github.com/ThreeDotsLabs/watermill"
)

// shopVariable makes a process of this program the shop: it holds an assignment.
const shopVariable = "POSTBOX_QUICKSTART_SHOP"

// assignment is what the demo tells the shop's process.
type assignment struct {
	File string
	Plan plan
}

// isShop says whether this process shall be the shop.
func isShop() bool { return os.Getenv(shopVariable) != "" }

// shop is the whole life of the shop's process. It ends when its work is done, and when the demo
// does.
func shop(ctx context.Context) (err error) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the demo, in whatever way that ends
		os.Exit(1)
	}()
	var task assignment
	if err := json.Unmarshal([]byte(os.Getenv(shopVariable)), &task); err != nil {
		return fmt.Errorf("%s: %w", shopVariable, err)
	}
	db, err := openDatabase(ctx, task.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	onlyErrors := &slog.HandlerOptions{Level: slog.LevelError}
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, onlyErrors)))
	return runShop(ctx, db, task.Plan, logger)
}

// process is the shop as the demo sees it.
type process struct {
	command *exec.Cmd
	output  bytes.Buffer  // to be read when it has ended
	ended   chan struct{} // closed then
	err     error         // set then
}

// start starts this program once more, as the shop.
func start(task assignment) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.Command(program), ended: make(chan struct{})} //nolint:gosec,noctx // this program; kill ends it
	p.command.Env = append(os.Environ(), shopVariable+"="+string(text))
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if _, err := p.command.StdinPipe(); err != nil { // nothing is written to it: its end tells the shop of ours
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start the shop: %w", err)
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// kill ends the process as kill -9 does, and waits until it is gone. It returns false if the
// process had ended by itself.
func (p *process) kill() bool {
	select {
	case <-p.ended:
		return false
	default:
	}
	err := p.command.Process.Kill()
	<-p.ended
	return err == nil && p.err != nil
}

// failure returns why the process has ended, nil where its work was done.
func (p *process) failure() error {
	<-p.ended
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("the shop failed: %w\n%s", p.err, p.lastWords())
}

const lastWords = 4096

// lastWords returns the end of what the process has printed, after its end.
func (p *process) lastWords() []byte {
	printed := p.output.Bytes()
	return printed[max(0, len(printed)-lastWords):]
}
