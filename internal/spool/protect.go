package spool

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// errGoexit is the error of a function that ended its goroutine.
var errGoexit = errors.New("it ended its goroutine by runtime.Goexit, as FailNow of a test does")

// Protect calls a function of the user and turns a panic into an error, and the end of its goroutine too. That cannot be stopped once it has begun, and
// the messages of a worker that ends so would never be settled, so the function gets a goroutine of its own.
func Protect(call func() error) error {
	err := errGoexit
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
			}
		}()
		err = call()
	}()
	<-ended
	return err
}
