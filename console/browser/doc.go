// Package browser tests the console in headless Chromium, and takes the pictures in docs/console. It is built with the tag
// browser alone, since it needs one:
//
//	go test -tags browser ./console/browser
//	go test -tags browser ./console/browser -screenshots ../../docs/console
package browser
