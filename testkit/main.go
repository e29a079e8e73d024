package testkit

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

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
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "testkit:", err)
			code = 1
		}
	}
	os.Exit(code)
}
