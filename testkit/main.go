package testkit

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs a package's tests, closes the shared servers and exits. A package that passed fails if goroutines are left then.
func Main(m *testing.M) {
	code := m.Run()
	if err := closeServers(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		code = max(code, 1)
	}
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "testkit:", err)
			code = 1
		}
	}
	os.Exit(code)
}
