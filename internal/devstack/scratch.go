package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const scratchPrefix = "troupe-"

// longestBase leaves room for "/troupe-pg-1234567890/s/.s.PGSQL.65535" in the 104 bytes that macOS allows a Unix socket's path
// (Linux: 108).
const longestBase = 60

// scratch is a folder in the temporary directory. Its owner holds its lock: this process, and children that inherit the lock's
// file. When all of them have ended, any later newScratch removes it.
type scratch struct {
	dir  string
	lock *os.File
}

func newScratch(kind string, who account) (*scratch, error) {
	base, err := scratchBase(who)
	if err != nil {
		return nil, err
	}
	sweep(base)
	dir, err := os.MkdirTemp(base, scratchPrefix+kind+"-")
	if err != nil {
		return nil, err
	}
	s := &scratch{dir: dir}
	if err := s.own(); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// own locks a file under another name and renames it, so that no sweep ever sees the lock file unlocked.
func (s *scratch) own() error {
	f, err := os.OpenFile(filepath.Join(s.dir, "new"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	s.lock = f
	if _, err := tryLock(f); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), lockOf(s.dir)); err != nil {
		return err
	}
	return os.Chmod(s.dir, 0o711) // the server's account may enter, no other user may list it
}

// remove may be called again.
func (s *scratch) remove() error {
	err := os.RemoveAll(s.dir)
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	return err
}

// sweep removes the folders of owners that have ended. A folder that it cannot remove belongs to another user, and stays.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, scratchPrefix+"*-*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || !ours(info) {
			continue
		}
		f, err := os.OpenFile(lockOf(dir), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, _ := tryLock(f); free {
			_ = os.RemoveAll(dir)
		}
		_ = f.Close()
	}
}

func lockOf(dir string) string { return filepath.Join(dir, "lock") }

func scratchBase(who account) (string, error) {
	var refused []error
	for _, base := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if len(base) > longestBase {
			refused = append(refused, fmt.Errorf("%s: too long for a Unix socket's path", base))
			continue
		}
		if err := who.reach(base); err != nil {
			refused = append(refused, err)
			continue
		}
		return base, nil
	}
	return "", fmt.Errorf("no usable temporary directory, set TMPDIR: %w", errors.Join(refused...))
}
