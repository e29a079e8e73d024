package sidecar

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/docs/manifests"
	"github.com/troupe-go/troupe/internal/traces"
)

// longestRelease bounds the time that a relay needs after its drain: five seconds each for its slot's last report and its lease's
// release.
const longestRelease = 10 * time.Second

// TestTheManifestsTellTheRelayWhatItUnderstands reads commands, flags, variables and the file with the program itself, with the
// test's own files in place of the mounted ones. It also checks that the probed paths are served on the probed ports, and that a
// pod has the time to drain.
func TestTheManifestsTellTheRelayWhatItUnderstands(t *testing.T) {
	t.Parallel()
	all, err := manifests.Read("../../docker/kubernetes")
	require.NoError(t, err)
	seen := 0
	for _, c := range all {
		if c.Program != relayProgram {
			continue
		}
		seen++
		p := Program{Args: c.Args, Environ: environOf(t, &c)}
		cmd, rest, err := p.root().Find(c.Args)
		require.NoError(t, err, c)
		require.NoError(t, cmd.ParseFlags(rest), c)
		require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), c)
		for name := range c.Env {
			known := name == "GOMEMLIMIT" || slices.ContainsFunc(everything, func(s setting) bool {
				return name == s.variable() || s.secret && name == s.variable()+"_FILE"
			})
			require.True(t, known, "%s %s: %s is no setting of the relay", c.File, c.Workload, name)
		}
		if cmd.Name() == "migrate" {
			v, err := p.read(cmd, databaseSettings...)
			require.NoError(t, err, c.Workload)
			_, err = v.database()
			require.NoError(t, err, c.Workload)
			continue
		}
		require.Equal(t, "run", cmd.Name())
		plan, err := p.plan(cmd, zerolog.Nop())
		require.NoError(t, err, c.Workload)
		_, port, err := net.SplitHostPort(plan.admin)
		require.NoError(t, err)
		require.Equal(t, port, strconv.Itoa(c.Ports["relay-admin"]), "%s: the admin port", c.Workload)
		require.NotEmpty(t, c.Probes)
		for _, probe := range c.Probes {
			require.Equal(t, "relay-admin", probe.Port, c.Workload)
			require.Contains(t, []string{"/livez", "/readyz"}, probe.Path, "%s: what wants no token", c.Workload)
		}
		for _, o := range plan.outboxes {
			needs := o.relay.Drain + longestRelease + httpLimit + traces.EndLimit
			require.Greater(t, c.Grace, needs, "%s: a relay may take %s to end", c.Workload, needs)
		}
	}
	require.Equal(t, 3, seen)
}

// environOf returns the environment, and writes the files that the environment, the flags and the file name.
func environOf(t *testing.T, c *manifests.Container) (environ []string) {
	t.Helper()
	dir := t.TempDir()
	at := func(text string) string {
		for _, prefix := range []string{"/run/", "/etc/"} {
			text = strings.ReplaceAll(text, prefix, dir+prefix)
		}
		return text
	}
	put := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	require.NoError(t, os.MkdirAll(dir+"/run/trust", 0o700))
	newAuthority(t).write(t, dir+"/run/trust")
	secret := func(path string) {
		if strings.HasPrefix(path, "/run/secrets/") {
			put(at(path), "a-secret-of-this-test")
		}
	}
	for path, text := range c.Files {
		put(at(path), at(text))
		for _, word := range strings.Fields(text) {
			secret(word)
		}
	}
	for n, arg := range c.Args {
		c.Args[n] = at(arg)
	}
	for name, value := range c.Env {
		secret(value)
		environ = append(environ, name+"="+at(value))
	}
	return environ
}
