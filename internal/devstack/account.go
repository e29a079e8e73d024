package devstack

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// account is the user a Postgres server runs as: this process's own, except for root, since initdb and postgres refuse to run as
// root.
type account struct {
	name     string
	uid, gid int
	other    bool // not this process's own
}

// give makes the account the owner of dir and everything in it.
func (a account) give(dir string) error {
	if !a.other {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, a.uid, a.gid)
	})
}

// reach returns an error if the account may not enter dir, by the permission bits of it and of its parents.
func (a account) reach(dir string) error {
	if !a.other {
		return nil
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !a.enters(info) {
			return fmt.Errorf("running as root, Postgres runs as user %s, who may not enter %s: allow it (chmod o+x) or choose another folder", a.name, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
