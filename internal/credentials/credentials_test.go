//go:build unix

package credentials

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func command(t *testing.T, text string) Command {
	t.Helper()
	c, err := ParseCommand(text)
	require.NoError(t, err)
	return c
}

func TestACommandLineIsSplitAndNotExpanded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`aws rds generate-db-auth-token --hostname db.example`: {"aws", "rds", "generate-db-auth-token", "--hostname", "db.example"},
		` a  "b c"	'd $HOME'` + "\n":                           {"a", "b c", "d $HOME"},
		`a\ b "c\"d" 'e\f' g""h ''`:                            {"a b", `c"d`, `e\f`, "gh", ""},
		`echo $HOME ; rm *`:                                    {"echo", "$HOME", ";", "rm", "*"},
		`sh -c 'echo "$PGHOST"'`:                               {"sh", "-c", `echo "$PGHOST"`},
	} {
		got, err := words(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "  ", "''", `a "s3cr3t`, `a 's3cr3t`, `s3cr3t\`} {
		_, err := ParseCommand(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "s3cr3t")
	}
}

func TestEachFailureOfACommandHasAClearErrorWithoutSecrets(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-of-the-environment")
	for name, c := range map[string]struct {
		line  string
		limit time.Duration
		want  string
	}{
		"there is none":      {"/no/such/s", 0, "no such file or directory"},
		"not on the path":    {"no-such-program-s", 0, "executable file not found"},
		"an exit status":     {`sh -c 'echo Unable to locate credentials >&2; exit 253'`, 0, "command sh: exit status 253; its standard error: Unable to locate credentials"},
		"a secret in stderr": {`sh -c 'echo s3cr3t-token; echo "got s3cr3t-token with $AWS_SECRET_ACCESS_KEY of postgres://u:s3cr3t@h" >&2; exit 1'`, 0, "standard error: got … with … of postgres://…@h"},
		"a signal":           {`sh -c 'kill -9 $$'`, 0, "signal: killed"},
		"a time-out":         {`sh -c 'sleep 600'`, time.Millisecond, "killed: no answer within 1ms"},
		"nothing":            {"true", 0, "it ended without an error, and printed nothing on standard output"},
		"blanks":             {"echo ' '", 0, "printed nothing"},
		"two lines":          {`printf 's3cr3t\ns3cr3t'`, 0, "it printed 2 lines: want one line, with the secret alone"},
		"too much":           {`sh -c 'while :; do echo s3cr3t-s3cr3t-s3cr3t-s3cr3t-s3cr3t-s3cr3t-s3cr3t; done'`, 0, "it printed more than 65536 bytes"},
		"escapes":            {`sh -c 'printf "\033[31mno\007\n" >&2; exit 1'`, 0, "standard error: ·[31mno"},
	} {
		t.Run(name, func(t *testing.T) {
			run := command(t, c.line)
			run.limit = c.limit
			_, err := run.RunLine(t.Context())
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "s3cr3t")
			require.NotContains(t, err.Error(), "\x1b")
		})
	}
}

func TestACommandHasItsVariablesAndIsNotRunByAShell(t *testing.T) {
	t.Parallel()
	got, err := command(t, `sh -c 'echo "$PGHOST:$PGPORT"'`).RunLine(t.Context(), "PGHOST=db", "PGPORT=5432")
	require.NoError(t, err)
	require.Equal(t, "db:5432", got)
	got, err = command(t, "echo $PGHOST `id`").RunLine(t.Context(), "PGHOST=db")
	require.NoError(t, err)
	require.Equal(t, "$PGHOST `id`", got)
}

// A command that waits for its child is killed after its time, and the child too.
func TestACommandIsKilledWithItsChildren(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, os.WriteFile(fifo, nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	run := command(t, `sh -c 'sh -c "echo \$\$ > '`+fifo+`'; exec sleep 600" & wait'`)
	ended := make(chan error, 1)
	go func() {
		_, err := run.RunLine(ctx)
		ended <- err
	}()
	var child string
	testkit.Wait(t, "the child", func() (bool, error) {
		text, err := os.ReadFile(fifo)
		child = strings.TrimSpace(string(text))
		return child != "", err
	})
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	testkit.Wait(t, "the end of the child", func() (bool, error) {
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z "), nil
	})
}

func TestCallersAtTheSameTimeShareOneFetch(t *testing.T) {
	t.Parallel()
	var fetches atomic.Int64
	release := make(chan struct{})
	s := &Shared[int64]{Fetch: func(ctx context.Context) (int64, error) {
		n := fetches.Add(1)
		select {
		case <-release:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}}
	waiting := func(n int) {
		testkit.Wait(t, "callers", func() (bool, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.running != nil && s.running.waits == n, nil
		})
	}
	impatient, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := s.Get(impatient); left <- err }()
	waiting(1)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			n, err := s.Get(t.Context())
			if n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	waiting(21)
	leave() // the caller that began the fetch leaves, and the others still get its value
	require.ErrorIs(t, <-left, context.Canceled)
	close(release)
	all.Wait()
	n, err := s.Get(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, n, "nothing is kept for later connections")
}

func TestAFetchThatNobodyWaitsForEnds(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	s := &Shared[int]{Fetch: func(ctx context.Context) (int, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestAValueIsFetchedAgainBeforeItsEndAndUsedUntilThen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	begin := now
	fetches, broken := 0, error(nil)
	s := &Shared[int]{
		Now: func() time.Time { return now },
		Fetch: func(context.Context) (int, error) {
			fetches++
			return fetches, broken
		},
		Lasts: func(int) (time.Time, time.Time) { return now.Add(50 * time.Minute), now.Add(time.Hour) },
	}
	get := func(after time.Duration) (int, error) {
		now = begin.Add(after)
		return s.Get(t.Context())
	}
	for _, c := range []struct {
		after time.Duration
		err   error
		want  int
	}{
		{0, nil, 1}, {49 * time.Minute, nil, 1}, {51 * time.Minute, errors.New("away"), 1}, {59 * time.Minute, nil, 3}, {108 * time.Minute, nil, 3},
	} {
		broken = c.err
		got, err := get(c.after)
		require.NoError(t, err, c.after)
		require.Equal(t, c.want, got, c.after)
	}
	broken = errors.New("away")
	_, err := get(3 * time.Hour)
	require.ErrorContains(t, err, "away")
}

func TestATokenSaysWhyItIsRefused(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s3cr3t"
	}
	rds := func(at string) string {
		return "db.example:5432/?Action=connect&DBUser=u&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=" + at + "&X-Amz-Expires=900&X-Amz-Signature=s3cr3t"
	}
	for token, want := range map[string]string{
		"": "", "a password": "", "a.b.c": "", jwt("{}"): "", jwt("["): "",
		jwt(fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Unix()-60, now.Unix()+60)): "",
		jwt(fmt.Sprintf(`{"exp":%d}`, now.Unix()-60)):                         "the token expired at 2026-01-31 11:59:00Z, and it is 2026-01-31 12:00:00Z here",
		jwt(fmt.Sprintf(`{"nbf":%d}`, now.Unix()+300)):                        "this machine's clock is behind",
		rds("20260131T115000Z"):                                               "", rds("20260131T114000Z"): "the token expired at 2026-01-31 11:55:00Z", rds("20260131T121000Z"): "clock is behind", rds("s3cr3t"): "",
	} {
		got := Explain(token, now)
		require.NotContains(t, got, "s3cr3t")
		if want == "" {
			require.Empty(t, got, token)
		}
		require.Contains(t, got, want, token)
	}
}
