//go:build !unix

package credentials

import "os/exec"

// endWithChildren leaves the default: only the command itself is killed.
func endWithChildren(*exec.Cmd) {}
