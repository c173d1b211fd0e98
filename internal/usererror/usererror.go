// Package usererror makes errors that functions of the user return safe to inspect.
package usererror

import (
	"errors"
	"fmt"
	"reflect"
)

// maxDepth limits how deep errors may nest. An error that unwraps to itself would be examined for ever. A handler may
// join thousands of errors one by one, each within the next, and the class of the innermost must not be lost.
const maxDepth = 10_000

// Checked returns the error of a user's function. If a method of the error, or of an error within it, panics, it
// returns an error that says so. The usual reason is a nil pointer of a concrete type that is returned as an error.
// Such a panic must happen here, under recover. Later it would end the process, or stop a queue.
func Checked(err error) (checked error) {
	if err == nil {
		return nil
	}
	w := walk{}
	defer func() {
		if reason := recover(); reason != nil {
			checked = w.unusable(err, reason)
		}
	}()
	w.visit(err, 0)
	return err
}

// walk visits an error and all errors within it.
type walk struct{ at error }

// visit calls all methods that fmt and errors may call, first those of the errors within. It panics if one of them
// does.
func (w *walk) visit(err error, depth int) {
	if w.at = err; depth > maxDepth {
		panic(fmt.Sprintf("more than %d errors, one within the other", maxDepth))
	}
	switch e := err.(type) { //nolint:errorlint // each of the errors is visited by itself
	case interface{ Unwrap() error }:
		w.visitInner(depth, e.Unwrap())
	case interface{ Unwrap() []error }:
		w.visitInner(depth, e.Unwrap()...)
	}
	if isStandard(err) {
		return
	}
	w.at = err
	if e, ok := err.(interface{ Is(err error) bool }); ok {
		e.Is(harmless{})
	}
	if e, ok := err.(interface{ As(target any) bool }); ok {
		e.As(new(harmless))
	}
	_ = err.Error()
}

// isStandard reports whether an error comes from errors.Join or fmt.Errorf. Such an error only passes on the texts of
// the errors within it, which have been visited. Asking each of thousands for its text, which contains those of all the
// others, would take seconds.
func isStandard(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() != reflect.Pointer || reflect.ValueOf(err).IsNil() {
		return false
	}
	pkg := t.Elem().PkgPath()
	return pkg == "errors" || pkg == "fmt"
}

func (w *walk) visitInner(depth int, errs ...error) {
	for _, err := range errs {
		if err != nil {
			w.visit(err, depth+1)
		}
	}
}

// unusable returns the error that replaces one that panicked. It keeps the text of that error, if there is one.
func (w *walk) unusable(err error, reason any) error {
	why := fmt.Sprintf("an error of type %T panics: %v", w.at, reason)
	if v := reflect.ValueOf(w.at); v.Kind() == reflect.Pointer && v.IsNil() {
		why = fmt.Sprintf("a nil %T was returned as an error, where nil itself means success, and panics: %v", w.at, reason)
	}
	if text := textOf(err); text != "" {
		return fmt.Errorf("%s; %s", why, text)
	}
	return errors.New(why)
}

// textOf returns the text of an error, or an empty text if that panics.
func textOf(err error) (text string) {
	defer func() { _ = recover() }()
	return err.Error()
}

// harmless is an error that equals no other error.
type harmless struct{}

// Error returns the text of the error.
func (harmless) Error() string { return "harmless" }
