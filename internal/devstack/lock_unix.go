//go:build unix

package devstack

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock of an open file. The lock is free again when this process and all processes that inherited the file have
// ended.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
