package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/secrets"
)

const (
	commandLimit = 30 * time.Second // a cloud's command line tool takes seconds on a busy machine
	pipeLimit    = time.Second      // time to read the rest of the output after the command has ended
	shownError   = 400              // characters of the standard error that an error quotes
)

// A Command is a program with its arguments that prints a secret. It is not run by a shell.
type Command struct {
	words []string
	limit time.Duration // 0: commandLimit
}

// ParseCommand splits a command line at blanks, as a shell does with quotes and backslashes, and expands nothing.
func ParseCommand(text string) (Command, error) {
	w, err := words(text)
	return Command{words: w}, err
}

// Run runs the command and returns its standard output without leading and trailing blanks. The command has no standard input.
// Its environment is the environment of this process and environ, KEY=value. The command is killed, with the processes that it
// started, when ctx ends, or after 30 s.
func (c Command) Run(ctx context.Context, environ ...string) (string, error) {
	limit := c.limit
	if limit == 0 {
		limit = commandLimit
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow)
	defer cancel()
	cmd := exec.CommandContext(limited, c.words[0], c.words[1:]...)
	cmd.Env = append(os.Environ(), environ...)
	cmd.WaitDelay = pipeLimit
	endWithChildren(cmd)
	stdout, stderr := &bounded{most: most, full: cancel}, &bounded{most: 8 << 10}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	secret := strings.TrimSpace(stdout.text.String())
	var exit *exec.ExitError
	switch {
	case stdout.over:
		return "", c.failed(fmt.Errorf("it printed more than %d bytes: this is no secret", most), "", "")
	case ctx.Err() != nil:
		return "", c.failed(ctx.Err(), "", "")
	case errors.Is(context.Cause(limited), errTooSlow):
		return "", c.failed(fmt.Errorf("%w: no answer within %s", errTooSlow, limit), stderr.text.String(), secret)
	case errors.As(err, &exit):
		return "", c.failed(errors.New(exit.String()), stderr.text.String(), secret)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // ErrWaitDelay: only a background process of the command still has the output open
		return "", c.failed(err, "", "")
	case secret == "":
		return "", c.failed(errors.New("it ended without an error, and printed nothing on standard output"), stderr.text.String(), "")
	}
	return secret, nil
}

var errTooSlow = errors.New("killed")

// RunLine runs the command as Run does, and returns an error if it prints more than one line.
func (c Command) RunLine(ctx context.Context, environ ...string) (string, error) {
	secret, err := c.Run(ctx, environ...)
	if err == nil && strings.ContainsAny(secret, "\r\n\x00") {
		return "", c.failed(fmt.Errorf("it printed %d lines: want one line, with the secret alone", strings.Count(secret, "\n")+1), "", "")
	}
	return secret, err
}

// failed returns an error that names the program without its arguments, which may be secret, and quotes the standard error
// without secrets.
func (c Command) failed(err error, stderr, stdout string) error {
	if shown := plain.Line(strings.TrimSpace(withoutSecrets(stderr, stdout)), shownError); shown != "" {
		return fmt.Errorf("command %s: %w; its standard error: %s", c.words[0], err, shown)
	}
	return fmt.Errorf("command %s: %w", c.words[0], err)
}

// withoutSecrets removes from a text the lines of stdout, the values of variables that are secret by their name, and the
// passwords of URLs.
func withoutSecrets(text, stdout string) string {
	var hidden []string
	for line := range strings.Lines(stdout) {
		hidden = append(hidden, strings.TrimSpace(line))
	}
	for _, line := range os.Environ() {
		name, value, _ := strings.Cut(line, "=")
		name = strings.ToUpper(name)
		for _, part := range []string{"SECRET", "TOKEN", "PASSWORD", "_KEY", "CREDENTIAL"} {
			if strings.Contains(name, part) {
				hidden = append(hidden, strings.TrimSpace(value))
				break
			}
		}
	}
	return address.Redact(secrets.New(hidden...).Hide(text))
}

// A bounded writer keeps the first bytes that are written, and discards the others.
type bounded struct {
	text bytes.Buffer
	most int
	over bool
	full func() // called when more than most bytes are written; may be nil
}

func (b *bounded) Write(p []byte) (int, error) {
	left := b.most - b.text.Len()
	if len(p) > left {
		b.over = true
		if b.full != nil {
			b.full()
		}
	}
	b.text.Write(p[:min(len(p), left)])
	return len(p), nil
}
