package door

import (
	"net"
	"net/netip"
	"sync"
)

// MostConnections is the number of connections that an endpoint keeps open. Each takes memory before the endpoint knows whose it is: some
// kilobytes, and the header of its request in addition.
const MostConnections = 512

// Limit returns a listener that keeps at most MostConnections connections open. One more closes the oldest connection of the address that
// has the most, so that a client with many connections does not keep the others out.
func Limit(l net.Listener) net.Listener {
	return &limited{Listener: l, open: make(map[string][]*connection)}
}

type limited struct {
	net.Listener

	mu   sync.Mutex
	open map[string][]*connection // by address, the oldest first
	all  int
}

// A connection of a limited listener.
type connection struct {
	net.Conn
	of      *limited
	address string
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{accepted, l, networkOf(accepted.RemoteAddr().String())}
	if full := l.add(c); full != nil {
		_ = full.Close() // it is closed already if its client has ended it meanwhile
	}
	return c, nil
}

// add counts a connection. If there are too many, it returns the one to close.
func (l *limited) add(c *connection) (full *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c.address] = append(l.open[c.address], c)
	if l.all++; l.all <= MostConnections {
		return nil
	}
	most := c.address
	for address, open := range l.open {
		if len(open) > len(l.open[most]) {
			most = address
		}
	}
	return l.open[most][0]
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}

// CloseWrite ends the sending side, so that a client that still sends its request can read why it was refused.
func (c *connection) CloseWrite() error {
	if half, can := c.Conn.(interface{ CloseWrite() error }); can {
		return half.CloseWrite()
	}
	return nil
}

func (l *limited) remove(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := l.open[c.address]
	for i, one := range open {
		if one == c {
			if l.all--; len(open) == 1 {
				delete(l.open, c.address)
			} else {
				l.open[c.address] = append(open[:i:i], open[i+1:]...)
			}
			return
		}
	}
}

// networkOf returns an address without port; of an IPv6 address the first 64 bits, since one customer has all of the rest.
func networkOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().Addr().String()
	}
	return ip.String()
}
