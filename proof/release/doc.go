// Package release tests scripts/release-modules on a copy of the repository.
package release
