package credentials

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/address"
)

// PasswordFile returns a function for pgxpool.Config.BeforeConnect that sets the password to the text of a file.
func PasswordFile(path string) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, c *pgx.ConnConfig) (err error) {
		c.Password, err = ReadFile(path)
		return err
	}
}

// URLFile returns a function for pgxpool.Config.BeforeConnect that sets user and password to the ones in a file's URL. It does
// not read the other parts of the URL: they keep the values that they had when the pool was made.
func URLFile(path string) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, c *pgx.ConnConfig) error {
		text, err := ReadFile(path)
		if err != nil {
			return err
		}
		now, err := address.ParseConn(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		c.User, c.Password = now.User, now.Password
		return nil
	}
}

// PasswordCommand returns a function for pgxpool.Config.BeforeConnect that sets the password to the output of a command. The
// environment of the command has PGHOST, PGPORT, PGUSER and PGDATABASE of the connection. Connections to one server as one role
// that open at the same time share one run.
func PasswordCommand(command Command) func(context.Context, *pgx.ConnConfig) error {
	runs := &perConnection{command: command, all: make(map[target]*Shared[string])}
	return func(ctx context.Context, c *pgx.ConnConfig) (err error) {
		c.Password, err = runs.of(target{c.Host, c.Port, c.User, c.Database}).Get(ctx)
		return err
	}
}
