package run

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// helloLimit bounds the time in which a client sends its first line, and in which the proxy connects to the server.
const helloLimit = 5 * time.Second

// A proxy forwards the children's connections, and can cut them. It does not interpret the bytes: a client names its target in
// its first line,
//
//	<token> <child> <host:port>
//
// and the proxy answers with a line, "ok" or the error. So a child reaches every address through it that a broker advertises,
// whatever it is. The token keeps other users of the machine from using the proxy.
type proxy struct {
	listener net.Listener
	token    string

	mu    sync.Mutex
	links map[*link]struct{}
}

// A link is one forwarded connection: the child's half and the server's.
type link struct {
	child        string
	near, beyond *net.TCPConn
}

func newProxy() (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return &proxy{listener: listener, token: rand.Text(), links: make(map[*link]struct{})}, nil
}

// way returns the proxy's token and address for a child: see through.
func (p *proxy) way() string { return p.token + "@" + p.listener.Addr().String() }

// run forwards connections until ctx ends, and then cuts the remaining ones.
func (p *proxy) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return p.listener.Close()
	})
	group.Go(func() error {
		for {
			conn, err := p.listener.Accept()
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("proxy: %w", err)
			}
			group.Go(func() error {
				p.pass(ctx, conn.(*net.TCPConn))
				return nil
			})
		}
	})
	return group.Wait()
}

func (p *proxy) pass(ctx context.Context, near *net.TCPConn) {
	defer near.Close()
	stop := context.AfterFunc(ctx, func() { _ = near.Close() })
	defer stop()
	_ = near.SetDeadline(time.Now().Add(helloLimit))
	in := bufio.NewReaderSize(near, 1<<10)
	child, address, err := p.hello(in)
	if err != nil {
		return
	}
	beyond, err := (&net.Dialer{Timeout: helloLimit}).DialContext(ctx, "tcp", address)
	if err != nil {
		_, _ = fmt.Fprintln(near, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	defer beyond.Close()
	l := &link{child, near, beyond.(*net.TCPConn)}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	_ = near.SetDeadline(time.Time{})
	if _, err := io.WriteString(near, "ok\n"); err != nil {
		return
	}
	l.carry(in)
}

func (p *proxy) hello(in *bufio.Reader) (child, address string, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return "", "", err
	}
	fields := strings.Fields(string(line))
	if len(fields) != 3 || subtle.ConstantTimeCompare([]byte(fields[0]), []byte(p.token)) != 1 {
		return "", "", errors.New("not one of ours")
	}
	return fields[1], fields[2], nil
}

// carry copies in both directions until either end is closed. in is near, preceded by the bytes that were read ahead.
func (l *link) carry(in io.Reader) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(l.beyond, in)
		_ = l.beyond.Close()
	}()
	_, _ = io.Copy(l.near, l.beyond)
	_ = l.near.Close()
	<-done
}

// cut resets every connection of child, in the middle of any transfer, and returns their number.
func (p *proxy) cut(child string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if l.child != child {
			continue
		}
		for _, conn := range []*net.TCPConn{l.near, l.beyond} {
			_ = conn.SetLinger(0) // close sends RST, and drops the unsent bytes
			_ = conn.Close()
		}
		n++
	}
	return n
}
