package devstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestCachedIsBuiltOnceForAllWhoWantItAtOnce(t *testing.T) {
	cache := emptyCache(t)
	var built atomic.Int32
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			_, err := cached(t.Context(), account{}, "thing", func(dir string) error {
				built.Add(1)
				return os.WriteFile(filepath.Join(dir, "file"), []byte("whole"), 0o600)
			})
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 1, built.Load())
	require.FileExists(t, filepath.Join(cache, "thing", "file"))
}

func TestCachedIsBuiltAnewAfterAFailureAndAfterADeath(t *testing.T) {
	cache := emptyCache(t)
	failure := errors.New("half way")
	_, err := cached(t.Context(), account{}, "thing", func(string) error { return failure })
	require.ErrorIs(t, err, failure)
	require.NoDirExists(t, filepath.Join(cache, "thing"))

	require.NoError(t, os.MkdirAll(filepath.Join(cache, "thing.partial", "rest of a killed process"), 0o700))
	dir, err := cached(t.Context(), account{}, "thing", func(string) error { return nil })
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestCachedWaitsNoLongerThanItsContext(t *testing.T) {
	cache := emptyCache(t)
	held, err := lockFile(t.Context(), filepath.Join(cache, "thing.lock"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, held.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = cached(ctx, account{}, "thing", func(string) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
}

func TestSweepLeavesTheFoldersOfTheLiving(t *testing.T) {
	base := t.TempDir()
	alive, dead, stranger := &scratch{dir: base + "/troupe-x-1"}, &scratch{dir: base + "/troupe-x-2"}, base+"/troupe-x-3"
	for _, dir := range []string{alive.dir, dead.dir, stranger} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	require.NoError(t, alive.own())
	require.NoError(t, dead.own())
	require.NoError(t, dead.lock.Close(), "as the end of the process would")
	sweep(base)
	require.DirExists(t, alive.dir)
	require.NoDirExists(t, dead.dir)
	require.DirExists(t, stranger)
	require.NoError(t, alive.remove())
}

// emptyCache sets the user's cache folder to an empty folder.
func emptyCache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", dir)
	cache, err := cacheDir(account{})
	require.NoError(t, err)
	return cache
}
