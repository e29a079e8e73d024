//go:build !unix

package credentials

import "os/exec"

// endWithChildren does nothing on this system: only the command itself is killed.
func endWithChildren(*exec.Cmd) {}
