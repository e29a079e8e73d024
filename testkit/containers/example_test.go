package containers_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/troupe-go/troupe/testkit/containers"
)

// The tests of a binary share one stack, and testkit uses it. This is the service's TestMain.
func ExampleStart() {
	_ = func(m *testing.M) {
		stack, err := containers.Start(context.Background(), containers.Config{Databases: []string{"seats"}, Registry: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := stack.Setenv(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		code := m.Run()
		if err := stack.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	// Output:
}
