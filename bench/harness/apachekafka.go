package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// ApacheKafka returns the path of apachekafka.sh in a checkout of Troupe.
func ApacheKafka(checkout string) string {
	return filepath.Join(checkout, "internal", "devstack", "apachekafka", "apachekafka.sh")
}

// Sweep starts a shell that destroys the brokers in dir/kafka and removes dir, once this process has ended, however it ends: it reads from a
// pipe whose other end is here. A child of this process ends by itself; a broker of apachekafka.sh does not. end does it at once.
func Sweep(dir, apacheKafka string) (end func() error, err error) {
	const script = `read -r _; if [ -e "$0/kafka" ]; then "$1" destroy --dir "$0/kafka"; fi; rm -rf "$0"`
	watcher := exec.Command("/bin/sh", "-c", script, dir, apacheKafka)
	pipe, err := watcher.StdinPipe()
	if err != nil {
		return nil, err
	}
	watcher.Stderr = os.Stderr
	detach(watcher)
	if err := watcher.Start(); err != nil {
		return nil, err
	}
	return func() error { return errors.Join(pipe.Close(), watcher.Wait()) }, nil
}

// FreePorts returns the first of n adjacent free ports of 127.0.0.1, below the ephemeral range: an outgoing connection could use a port of
// that range before the caller does.
func FreePorts(n int) (int, error) {
	for range 100 {
		first, free := 20_000+rand.IntN(12_000), 0
		for free < n && isFree(first+free) {
			free++
		}
		if free == n {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no %d neighbouring ports are free", n)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}
