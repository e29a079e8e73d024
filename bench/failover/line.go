package main

import (
	"io"
	"net"
	"sync/atomic"
)

// A line forwards connections to a server. While it is cut it swallows all data, so the two ends see only silence.
type line struct {
	listener net.Listener
	to       string
	cut      atomic.Bool
}

func openLine(to string) (*line, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &line{listener: listener, to: to}
	go l.serve()
	return l, nil
}

func (l *line) port() int { return l.listener.Addr().(*net.TCPAddr).Port }

// serve ends when the listener is closed.
func (l *line) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		for _, pipe := range [][2]net.Conn{{client, server}, {server, client}} {
			go func() {
				_, _ = io.Copy(end{pipe[0], l}, pipe[1])
				_ = client.Close()
				_ = server.Close()
			}()
		}
	}
}

// An end writes to a connection unless its line is cut.
type end struct {
	net.Conn
	line *line
}

func (e end) Write(p []byte) (int, error) {
	if e.line.cut.Load() {
		return len(p), nil
	}
	return e.Conn.Write(p)
}

// ReadFrom hides the connection's own, which would pass Write by.
func (e end) ReadFrom(from io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{e}, from)
}
