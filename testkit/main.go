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

// leaveLimit limits the time for goroutines that are ending, such as goroutines of connections that are being closed.
const leaveLimit = 20 * time.Second

// Main runs a package's tests, closes the shared servers and exits. A package whose tests passed still fails if goroutines are
// left. Unless -parallel is set, three tests per processor run at once: they wait for servers more than they compute.
func Main(m *testing.M) {
	flag.Parse()
	atOnce := 3 * runtime.GOMAXPROCS(0)
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "test.parallel" {
			atOnce = 0
		}
	})
	if atOnce > 0 {
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce)) // fails if there is no such flag
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

// leaks returns goleak's error about goroutines that do not end by themselves. goleak waits for half a second, which is short on
// a busy machine, so leaks repeats the search until leaveLimit.
func leaks() error {
	for end := time.Now().Add(leaveLimit); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
