package devstack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// oldestMajor is the oldest Postgres that Troupe supports.
const oldestMajor = 14

// binaries is a folder with postgres and initdb.
type binaries struct {
	dir     string
	version string // as the server prints it: 17.5, 18beta1
}

// findBinaries searches where packages install Postgres, and fetches it if none is installed.
func findBinaries(ctx context.Context, who account) (binaries, error) {
	for _, dir := range pathFolders(ctx) {
		if b, err := inspect(ctx, dir, who); err == nil {
			return b, nil
		}
	}
	var found []binaries
	for _, dir := range packageFolders() {
		if b, err := inspect(ctx, dir, who); err == nil {
			found = append(found, b)
		}
	}
	if len(found) > 0 {
		return slices.MaxFunc(found, func(a, b binaries) int { return a.major() - b.major() }), nil
	}
	dir, err := FetchPostgres(ctx, Postgres17)
	if err != nil {
		return binaries{}, fmt.Errorf("no Postgres %d or newer found, and none could be fetched: %w; "+
			"install one (apt install postgresql, dnf install postgresql-server, brew install postgresql@17) or set TROUPE_POSTGRES to a server's URL",
			oldestMajor, err)
	}
	return inspect(ctx, dir, who)
}

func pathFolders(ctx context.Context) []string {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return dirs
}

func packageFolders() []string {
	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // Red Hat, from postgresql.org
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	return dirs
}

// inspect checks a folder of binaries and reads their version. It resolves links, because initdb looks for postgres in its own
// folder.
func inspect(ctx context.Context, dir string, who account) (binaries, error) {
	path, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return binaries{}, err
	}
	b := binaries{dir: filepath.Dir(path)}
	if _, err := exec.LookPath(b.path("initdb")); err != nil {
		return binaries{}, err
	}
	if err := who.reach(b.dir); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, b.path("postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("%s: %w", b.path("postgres"), err)
	}
	// postgres (PostgreSQL) 17.5 (Debian 17.5-1)
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return binaries{}, fmt.Errorf("%s: version %q", b.path("postgres"), out)
	}
	b.version = fields[2]
	if b.major() < oldestMajor {
		return binaries{}, errors.New(b.dir + ": Postgres " + b.version + " is too old")
	}
	return b, nil
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

func (b binaries) major() int {
	digits := strings.IndexFunc(b.version, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(b.version)
	}
	major, _ := strconv.Atoi(b.version[:digits])
	return major
}
