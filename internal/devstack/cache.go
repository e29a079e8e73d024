package devstack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// cacheDir returns the folder for files that are expensive to make and the same for every start: in the user's cache folder, or
// for root, whose home the server's account cannot enter, a folder for that account.
func cacheDir(who account) (string, error) {
	if who.other {
		dir := filepath.Join("/var/cache/troupe", strconv.Itoa(who.uid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		return dir, who.reach(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "troupe")
	return dir, os.MkdirAll(dir, 0o755)
}

// cached returns the folder name of the cache, which build fills on first use. Concurrent processes wait for the one that builds;
// if it dies while building, no half-filled folder has the name. The folder belongs to the account.
func cached(ctx context.Context, who account, name string, build func(dir string) error) (string, error) {
	cache, err := cacheDir(who)
	if err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	lock, err := lockFile(ctx, filepath.Join(cache, name+".lock"))
	if err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	defer lock.Close()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	if err := os.Mkdir(partial, 0o700); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	defer os.RemoveAll(partial)
	if err := who.give(partial); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	if err := build(partial); err != nil {
		return "", err
	}
	if err := who.give(partial); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	return dir, os.Rename(partial, dir)
}

func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		locked, err := tryLock(f)
		if locked {
			return f, nil
		}
		if err == nil {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				err = fmt.Errorf("another process holds %s: %w", path, ctx.Err())
			}
		}
		_ = f.Close()
		return nil, err
	}
}
