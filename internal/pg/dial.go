package pg

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// silence is the time after which a connection fails whose host acknowledges nothing that was sent to it. A firewall or a router may stop
// forwarding one connection and still forward the others. By the defaults of TCP and of pgx, a statement on it would wait for a quarter of an hour
// or longer. A statement that runs long, or waits for a lock, is not ended: the server's host acknowledges it at once.
const silence = 30 * time.Second

// keepAlive makes a connection fail after silence also if nothing is left to be acknowledged.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: silence / 2, Interval: silence / 6, Count: 3}

// limitSilence returns a DialFunc whose TCP connections fail after silence.
func limitSilence(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			// An error means that the system has no such option. Then the connection fails later.
			_ = tcp.SetKeepAliveConfig(keepAlive)
			_ = setUserTimeout(tcp, silence)
		}
		return conn, nil
	}
}
