package participant_test

import (
	"context"
	"errors"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

var errAsked = errors.New("as asked")

// count adds one to the counter of the command's key, so that a second effect shows.
func count(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
	key := string(c.Message.Key)
	var total int
	err := tx.QueryRow(ctx, `
		INSERT INTO counters AS c (key, total) VALUES ($1, 1)
		ON CONFLICT (key) DO UPDATE SET total = c.total + 1
		RETURNING total`, key).Scan(&total)
	if err != nil {
		return participant.Outcome{}, err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, $3)", key, c.Body.N, c.Attempt); err != nil {
		return participant.Outcome{}, err
	}
	switch c.Body.Fail {
	case "refuse":
		return participant.Refuse(TooMany{Limit: 3}), nil
	case "error":
		return participant.Succeed(Counted{}), errAsked
	case "permanent":
		return participant.Outcome{}, retry.Permanent(errAsked)
	case "panic":
		panic("as asked")
	case "kill":
		self, err := os.FindProcess(os.Getpid())
		must(err)
		must(self.Kill())
		select {}
	case "nothing":
		return participant.Outcome{}, nil
	case "hang":
		<-ctx.Done()
		return participant.Outcome{}, ctx.Err()
	}
	return participant.Succeed(Counted{N: c.Body.N, Total: total}), nil
}
