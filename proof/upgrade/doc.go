// Package upgrade tries what docs/upgrade.md says: this version of the code on tables of each earlier version, and what each
// migration locks.
package upgrade
