package sidecar

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/credentials"
)

// takeSecret takes a secret from a layer: its text, its file or its command. Two of them in one layer are an error. A file is
// read now, so that a mistake is found at the start. A command is not run yet.
func (v values) takeSecret(s setting, from layer) (found bool, err error) {
	values, names := make(map[string]string), []string{}
	for _, name := range []string{s.name, s.fileName(), s.commandName()} {
		if value, set := from.get(name); set && (name != s.commandName() || s.printed) {
			values[name], names = value, append(names, fmt.Sprintf("%s (from %s)", name, from.from(name)))
		}
	}
	switch len(names) {
	case 0:
		return false, nil
	case 1:
	default:
		return true, usagef("%s: set one of them", strings.Join(names, " and "))
	}
	if line, is := values[s.commandName()]; is {
		v.from[s.name] = from.from(s.commandName())
		v.text[s.commandName()] = line // for the comparison of a reload
		if v.command[s.name], err = credentials.ParseCommand(line); err != nil {
			return true, usagef("%s (from %s): %w", s.commandName(), v.from[s.name], err)
		}
		return true, nil
	}
	if file, is := values[s.fileName()]; is {
		v.from[s.name], v.path[s.name] = from.from(s.fileName()), file
		v.text[s.fileName()] = file // for the comparison of a reload
		if v.text[s.name], err = credentials.ReadFile(file); err != nil {
			return true, usagef("%s (from %s): %w", s.fileName(), v.from[s.name], err)
		}
		return true, nil
	}
	v.text[s.name], v.from[s.name] = values[s.name], from.from(s.name)
	return true, nil
}

// has reports whether a secret is set: as a text, by a file or by a command.
func (v values) has(s setting) bool {
	_, printed := v.command[s.name]
	return printed || v.text[s.name] != ""
}

// now returns a function that returns the current value of a secret: from its file or its command if it has one, else the text
// of the setting. The function may be called concurrently; calls at the same time share one run of the command.
func (v values) now(s setting) func(context.Context) (string, error) {
	if command, printed := v.command[s.name]; printed {
		shared := &credentials.Shared[string]{Fetch: func(ctx context.Context) (string, error) { return command.RunLine(ctx) }}
		return func(ctx context.Context) (string, error) {
			secret, err := shared.Get(ctx)
			return secret, v.broken(s, err)
		}
	}
	if path, filed := v.path[s.name]; filed {
		return func(context.Context) (string, error) {
			secret, err := credentials.ReadFile(path)
			return secret, v.broken(s, err)
		}
	}
	return func(context.Context) (string, error) { return v.text[s.name], nil }
}

// broken adds the setting's name, and the source of its value, to the error of a secret's file or command.
func (v values) broken(s setting, err error) error {
	if err == nil {
		return nil
	}
	name := s.name
	if _, printed := v.command[s.name]; printed {
		name = s.commandName()
	} else if _, filed := v.path[s.name]; filed {
		name = s.fileName()
	}
	return fmt.Errorf("%s (from %s): %w", name, v.from[s.name], err)
}

// login returns the function that sets the password, or user and password, of each new connection to the database. It returns
// nil if they come neither from a file nor from a command.
func (v values) login() func(context.Context, *pgx.ConnConfig) error {
	set, of := (func(context.Context, *pgx.ConnConfig) error)(nil), databasePassword
	if command, printed := v.command[of.name]; printed {
		set = credentials.PasswordCommand(command)
	} else if path, filed := v.path[of.name]; filed {
		set = credentials.PasswordFile(path)
	} else if path, filed := v.path[databaseURL.name]; filed && v.text[of.name] == "" {
		set, of = credentials.URLFile(path), databaseURL
	} else {
		return nil
	}
	return func(ctx context.Context, c *pgx.ConnConfig) error { return v.broken(of, set(ctx, c)) }
}
