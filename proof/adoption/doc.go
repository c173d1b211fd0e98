// Package adoption walks docs/adopt.md: each step, its commands and the way back.
package adoption
