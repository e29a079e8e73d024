package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// A dialer opens connections, in the form that pgx and kgo accept.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// through returns a dialer that connects through a proxy as the named child. way is the proxy's token and address, from
// proxy.way. Host names are resolved by the proxy.
func through(way, child string) (dialer, error) {
	token, proxy, ok := strings.Cut(way, "@")
	if !ok {
		return nil, errors.New("a proxy's way is token@host:port")
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(network, "tcp") {
			return nil, fmt.Errorf("dial %s: the proxy passes tcp only", network)
		}
		conn, err := (&net.Dialer{Timeout: helloLimit}).DialContext(ctx, "tcp", proxy)
		if err != nil {
			return nil, err
		}
		if err := ask(ctx, conn, fmt.Sprintf("%s %s %s\n", token, child, address)); err != nil {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s through the proxy: %w", address, err)}
		}
		return passing{conn, target(address)}, nil
	}, nil
}

// passing is a connection whose remote address is the target, not the proxy: pgx sends its cancel requests to the remote address.
type passing struct {
	net.Conn
	target net.Addr
}

func (p passing) RemoteAddr() net.Addr { return p.target }

// target is an address as it was dialled.
type target string

func (t target) Network() string { return "tcp" }
func (t target) String() string  { return string(t) }

// ask sends hello and reads the answer, and not a byte more.
func ask(ctx context.Context, conn net.Conn, hello string) error {
	limit := time.Now().Add(2 * helloLimit)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	_ = conn.SetDeadline(limit)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, hello); err != nil {
		return err
	}
	answer, err := bufio.NewReader(oneByOne{conn}).ReadString('\n')
	if err != nil {
		return err
	}
	if answer != "ok\n" {
		return errors.New(strings.TrimSpace(answer))
	}
	if !stop() { // ctx ended meanwhile and has changed the deadline
		return ctx.Err()
	}
	return conn.SetDeadline(time.Time{})
}

// oneByOne reads one byte at a time, so that a buffered reader takes no more than it needs: the bytes after the answer are the
// server's.
type oneByOne struct{ r io.Reader }

func (o oneByOne) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }
