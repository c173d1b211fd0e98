package spool

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Recovered calls a function of the user, and turns a panic into an error. It asks an error for its
// text and for those within it: a nil pointer, which is no nil error, panics here and not later.
func Recovered(call func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	if err = call(); err != nil {
		_, _ = err.Error(), errors.Is(err, errNone)
	}
	return err
}

// errNone is no error of anybody.
var errNone = errors.New("")

// Classified returns a classifier that never panics: if the user's classifier panics, the class is
// unknown. Otherwise the other messages of the batch would fail too.
func Classified(classify func(error) postbox.ErrorClass, logger watermill.LoggerAdapter) func(error) postbox.ErrorClass {
	return func(err error) postbox.ErrorClass {
		class := postbox.Unclassified
		if panicked := Recovered(func() error { class = classify(err); return nil }); panicked != nil {
			logger.Error("Postbox does not know whether an error is an outage, since Classify did not return", panicked, watermill.LogFields{"unclassified_error": err.Error()})
		}
		return class
	}
}
