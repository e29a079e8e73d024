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
	"net/http"
	"strings"
	"sync"
	"time"
)

// helloLimit bounds the time in which a client sends its request, and in which the proxy connects to the server.
const helloLimit = 5 * time.Second

// A proxy is an HTTP proxy between the children and the servers, which can cut their connections. A child connects by the method
// CONNECT, with its name as user and the proxy's token as password. So it reaches every address that a broker advertises. The
// token keeps other users of the machine from using the proxy.
type proxy struct {
	listener net.Listener
	token    string
	serving  sync.WaitGroup

	mu    sync.Mutex
	links map[*link]struct{}
}

// A link is one forwarded connection: the child's half and the server's.
type link struct {
	child string
	conns [2]*net.TCPConn
}

func newProxy() (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return &proxy{listener: listener, token: rand.Text(), links: make(map[*link]struct{})}, nil
}

// credentials returns the proxy's token and address for a child: see dialThrough.
func (p *proxy) credentials() string { return p.token + "@" + p.listener.Addr().String() }

// run forwards connections until ctx ends, and then closes the remaining ones.
func (p *proxy) run(ctx context.Context) error {
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: helloLimit, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err := server.Serve(p.listener)
	p.serving.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("proxy: %w", err)
}

// ServeHTTP forwards a connection until either end is closed.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.serving.Add(1)
	defer p.serving.Done()
	child, token, _ := r.BasicAuth()
	if r.Method != http.MethodConnect || subtle.ConstantTimeCompare([]byte(token), []byte(p.token)) != 1 {
		http.Error(w, "not one of ours", http.StatusForbidden)
		return
	}
	server, err := (&net.Dialer{Timeout: helloLimit}).DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, _, err := http.NewResponseController(w).Hijack() // the client sends nothing before the answer
	if err != nil {
		return
	}
	defer client.Close()
	_ = client.SetDeadline(time.Time{})
	l := &link{child, [2]*net.TCPConn{client.(*net.TCPConn), server.(*net.TCPConn)}}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	defer context.AfterFunc(r.Context(), func() { _ = client.Close() })()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	p.serving.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
}

// cut resets every connection of child, in the middle of any transfer, and returns their number.
func (p *proxy) cut(child string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.child != child {
			continue
		}
		for _, conn := range l.conns {
			_ = conn.SetLinger(0) // close sends RST, and drops the unsent bytes
			_ = conn.Close()
		}
		n++
	}
	return n
}

// A dialer opens connections, in the form that pgx and kgo accept.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// dialThrough returns a dialer that connects through a proxy as the named child. credentials is the proxy's token and address, from
// proxy.credentials. Host names are resolved by the proxy.
func dialThrough(credentials, child string) (dialer, error) {
	token, proxy, ok := strings.Cut(credentials, "@")
	if !ok {
		return nil, errors.New("want token@host:port of the proxy")
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(network, "tcp") {
			return nil, fmt.Errorf("dial %s: the proxy passes tcp only", network)
		}
		conn, err := (&net.Dialer{Timeout: helloLimit}).DialContext(ctx, "tcp", proxy)
		if err != nil {
			return nil, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodConnect, "http://"+address, nil)
		if err == nil {
			request.SetBasicAuth(child, token)
			err = sendConnect(conn, request)
		}
		if err != nil {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s through the proxy: %w", address, err)}
		}
		return forwarded{conn, target(address)}, nil
	}, nil
}

// sendConnect sends the request and reads the proxy's answer, and not a byte more.
func sendConnect(conn net.Conn, request *http.Request) error {
	ctx := request.Context()
	_ = conn.SetDeadline(time.Now().Add(2 * helloLimit))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := request.Write(conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(oneByOne{conn}), request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(response.Body)
		return errors.New(strings.TrimSpace(string(reason)))
	}
	if !stop() { // ctx ended meanwhile and has changed the deadline
		return ctx.Err()
	}
	return conn.SetDeadline(time.Time{})
}

// oneByOne reads one byte at a time, so that a buffered reader reads no more than it needs: the bytes after the answer are the
// server's.
type oneByOne struct{ io.Reader }

func (o oneByOne) Read(p []byte) (int, error) { return o.Reader.Read(p[:min(len(p), 1)]) }

// forwarded is a connection whose remote address is the target, not the proxy: pgx sends its cancel requests to the remote address.
type forwarded struct {
	net.Conn
	target net.Addr
}

func (f forwarded) RemoteAddr() net.Addr { return f.target }

// target is an address as it was dialled.
type target string

func (t target) Network() string { return "tcp" }
func (t target) String() string  { return string(t) }
