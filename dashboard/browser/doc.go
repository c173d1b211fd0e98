// Package browser tests the dashboard in a real browser: Chromium, driven by chromedp. It is a
// module of its own, so that chromedp is in the go.sum of no user.
//
//	go test -C proof/browser ./... -update
//
// writes the screenshots of docs/dashboard.
package browser
