//go:build !unix

package relay_test

// Processes that can be killed and frozen are Unix's.
const childEnv = ""

func child() int { return 0 }
