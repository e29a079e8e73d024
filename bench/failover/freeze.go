package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// freeze stops all processes of the server in dir, as a host that is cut off. Its connections stay open and silent until thaw.
func freeze(dir string) (thaw func() error, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		return nil, err
	}
	stopped := []int{postmaster}
	thaw = func() (err error) {
		for _, pid := range stopped {
			err = errors.Join(err, send(pid, syscall.SIGCONT))
		}
		stopped = nil
		return err
	}
	// The postmaster first: a process that is stopped starts no others.
	if err := syscall.Kill(postmaster, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	all, err := children(postmaster)
	for _, pid := range all {
		err = errors.Join(err, send(pid, syscall.SIGSTOP))
		stopped = append(stopped, pid)
	}
	if err != nil {
		return nil, errors.Join(err, thaw())
	}
	return thaw, nil
}

// send signals a process, unless it has ended.
func send(pid int, signal syscall.Signal) error {
	if err := syscall.Kill(pid, signal); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// children returns the processes that a process has started, as Linux's /proc has them.
func children(parent int) (all []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		// pid (name) state parent …, and the name may have spaces
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, pid)
	}
	return all, nil
}
