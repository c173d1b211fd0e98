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
var ErrGoexit = errors.New("the function ended its goroutine with runtime.Goexit, as FailNow of a test does")

// Protect calls a function of the user. It turns a panic, and a call of runtime.Goexit, into an
// error. Goexit cannot be stopped, so the function runs in a goroutine of its own. For a call with
// each message that is expensive. There [Recovered] is enough, since a worker survives Goexit.
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

// Recovered calls a function of the user, and turns a panic into an error. The methods of the
// returned error do not panic.
func Recovered(call func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	return usererror.Checked(call())
}

// Classified returns a classifier that never panics: if the user's classifier panics, the class is
// unknown. Otherwise the other messages of the batch would fail too.
func Classified(classify postbox.Classifier, logger watermill.LoggerAdapter) postbox.Classifier {
	return func(err error) postbox.ErrorClass {
		class := postbox.Unclassified
		if panicked := Protect(func() error { class = classify(err); return nil }); panicked != nil {
			logger.Error("Postbox does not know whether an error is an outage, since Classify did not return", panicked, watermill.LogFields{"unclassified_error": err.Error()})
		}
		return class
	}
}
