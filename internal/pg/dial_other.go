//go:build !linux

package pg

import (
	"net"
	"time"
)

// setUserTimeout does nothing: the system's own limit holds for sent data without an acknowledgement.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
