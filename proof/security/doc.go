// Package security holds the tests of what docs/security.md promises: names are no SQL, contents
// and passwords stay out of logs and errors, and each role gets along with the rights that the
// document grants it.
package security
