package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/retry"
)

// A Listener turns NOTIFY on one channel into wake-ups. It holds a connection of its own.
type Listener struct {
	Config  *pgxpool.Config // its ConnConfig and BeforeConnect are used, not its pool settings
	Channel string
	// OnConnect is called with each new connection, before LISTEN; may be nil.
	OnConnect func(context.Context, *pgx.Conn) error
	OnError   func(error) // called with the error of each lost connection; may be nil
	// Concerns reports whether a notification with this payload causes a wake-up; nil: each does.
	Concerns func(payload string) bool
}

// Run sends to wake, without blocking, after each notification and after each connect, since notifications in between were
// missed. It reconnects until ctx ends. A wake-up is a hint: poll as well.
func (l *Listener) Run(ctx context.Context, wake chan<- struct{}) {
	policy := retry.Policy{Initial: 100 * time.Millisecond, Cap: 10 * time.Second}
	for failed := 0; ctx.Err() == nil; {
		heard, err := l.listen(ctx, wake)
		if ctx.Err() != nil {
			return
		}
		if heard {
			failed = 0
		}
		failed++
		if l.OnError != nil {
			l.OnError(fmt.Errorf("listen on %s: %w", l.Channel, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(policy.Wait(failed)):
		}
	}
}

// beginLimit bounds the statements before LISTEN has returned: a host that is cut off does not answer.
const beginLimit = 30 * time.Second

// begin prepares the session and makes it listen.
func (l *Listener) begin(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, beginLimit)
	defer cancel()
	if err := Prepare(ctx, conn); err != nil {
		return err
	}
	if l.OnConnect != nil {
		if err := l.OnConnect(ctx, conn); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.Channel}.Sanitize())
	return err
}

func (l *Listener) listen(ctx context.Context, wake chan<- struct{}) (heard bool, err error) {
	conn, err := Connect(ctx, l.Config)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(ctx)
	}()
	if err := l.begin(ctx, conn); err != nil {
		return false, err
	}
	for concerns := true; ; {
		if concerns {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true, err
		}
		concerns = l.Concerns == nil || l.Concerns(n.Payload)
	}
}
