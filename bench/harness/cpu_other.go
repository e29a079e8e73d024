//go:build !unix

package harness

// CPU is not known on this system.
func CPU() float64 { return 0 }
