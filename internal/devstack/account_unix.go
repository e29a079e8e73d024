//go:build unix

package devstack

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// serverAccount returns the account of the server if this process runs as root: an existing unprivileged user, else uid 65534.
func serverAccount() account {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid > 0 {
			return account{name: name, uid: uid, gid: gid, other: true}
		}
	}
	return account{name: "65534", uid: 65534, gid: 65534, other: true}
}

func (a account) attributes() *syscall.SysProcAttr {
	if !a.other {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}}
}

func (a account) enters(info fs.FileInfo) bool {
	bit := fs.FileMode(0o001)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		switch {
		case int(st.Uid) == a.uid:
			bit = 0o100
		case int(st.Gid) == a.gid:
			bit = 0o010
		}
	}
	return info.Mode()&bit != 0
}

// ours reports whether this process's user owns the file.
func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
