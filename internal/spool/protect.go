package spool

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/usererror"
)

// ErrGoexit is the error of a function that ended its goroutine.
var ErrGoexit = errors.New("it ended its goroutine by runtime.Goexit, as FailNow of a test does")

// Protect calls a function of the user. It turns a panic into an error, and a call of runtime.Goexit too. Goexit cannot be stopped, so the function
// runs in a goroutine of its own. Where there is one call for each message, that is dear: there [Recovered] does, since a worker survives Goexit.
func Protect(call func() error) error {
	err := ErrGoexit
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = Recovered(call)
	}()
	<-ended
	return err
}

// Recovered calls a function of the user, and turns a panic into an error. An error that it returns is safe to look at.
func Recovered(call func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	return usererror.Checked(call())
}

// Classified returns a classifier that never panics: what the user's does not classify that way is unknown. Otherwise the other messages of the
// batch would have failed too.
func Classified(classify postbox.Classifier, logger watermill.LoggerAdapter) postbox.Classifier {
	return func(err error) postbox.ErrorClass {
		class := postbox.Unclassified
		if panicked := Protect(func() error { class = classify(err); return nil }); panicked != nil {
			logger.Error("Postbox does not know whether an error is an outage, since Classify did not return", panicked, watermill.LogFields{"about": err.Error()})
		}
		return class
	}
}
