package testkit

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leaveLimit is how long goroutines that are on their way out may take: connections that are being closed, say.
const leaveLimit = 20 * time.Second

// Main runs a package's tests, closes the shared servers and exits. A package that passed fails if goroutines are left then.
// Unless -parallel says otherwise, three tests run at once for each processor: they wait for servers more than they compute.
func Main(m *testing.M) {
	flag.Parse()
	atOnce := 3 * runtime.GOMAXPROCS(0)
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "test.parallel" {
			atOnce = 0
		}
	})
	if atOnce > 0 {
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce)) // fails where there is no such flag
	}
	code := m.Run()
	if err := closeServers(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		code = max(code, 1)
	}
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, "testkit:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks is what goleak finds that does not end by itself. It looks for half a second at a time, which is short on a busy machine.
func leaks() error {
	for end := time.Now().Add(leaveLimit); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
