// Package usererror makes errors that functions of the user return safe to inspect.
package usererror

import (
	"fmt"
	"reflect"
)

// Checked returns the error of a user's function. If a method of the error, or of an error within
// it, panics, it returns an error that says so. The usual reason is a nil pointer of a concrete
// type that is returned as an error. Such a panic must happen here, under recover. Later it would
// end the process, or stop a queue.
func Checked(err error) (checked error) {
	if err == nil {
		return nil
	}
	at := err
	defer func() {
		if reason := recover(); reason != nil {
			checked = unusable(at, reason)
		}
	}()
	visit(err, &at)
	at = err
	_ = err.Error()
	return err
}

// visit asks an error for those within it, and one without any for its text. at is the one that is
// asked.
func visit(err error, at *error) {
	var inner []error
	*at = err
	switch e := err.(type) { //nolint:errorlint // each of the errors is visited by itself
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	leaf := true
	for _, err := range inner {
		if err != nil {
			leaf = false
			visit(err, at)
		}
	}
	if leaf {
		_ = err.Error()
	}
}

// unusable returns the error that replaces one that panicked.
func unusable(err error, reason any) error {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("a nil %T was returned as an error, where nil itself means success, and panics: %v", err, reason)
	}
	return fmt.Errorf("an error of type %T panics: %v", err, reason)
}
