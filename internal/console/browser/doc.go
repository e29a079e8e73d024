// Package browser tests the console in headless Chromium, and takes the pictures in docs/console. It is built only with the
// tag browser, since it needs a browser:
//
//	go test -tags browser ./internal/console/browser
//	go test -tags browser ./internal/console/browser -screenshots ../../docs/console
package browser
