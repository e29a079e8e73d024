//go:build !unix

package machine

// CPU is not known here.
func CPU() float64 { return 0 }
