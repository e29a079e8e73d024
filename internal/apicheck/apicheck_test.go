package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A repository is a module under git, in a folder of the test's.
type repository struct {
	t      *testing.T
	folder string
}

func newRepository(t *testing.T) repository {
	r := repository{t, t.TempDir()}
	r.write("go.mod", "module example.com/m\n\ngo 1.26\n")
	r.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- First.\n")
	r.write("outbox/outbox.go", "package outbox\n\nfunc Write(n int) {}\n\nfunc Read() {}\n\ntype Row struct{ ID int }\n")
	r.write("internal/x/x.go", "package x\n\nfunc Hidden() {}\n")
	r.write("cmd/m/main.go", "package main\n\nfunc Start() {}\n\nfunc main() {}\n")
	r.git("init", "-q")
	r.commit()
	return r
}

func (r repository) write(path, text string) {
	path = filepath.Join(r.folder, path)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(r.t, os.WriteFile(path, []byte(text), 0o600))
}

func (r repository) git(args ...string) {
	_, err := git(r.folder, args...)
	require.NoError(r.t, err)
}

func (r repository) commit() {
	r.git("add", ".")
	r.git("-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "x")
}

func (r repository) check() error { return run(r.t.Output(), r.folder, "") }

func TestBeforeTheFirstReleaseNothingIsCompared(t *testing.T) {
	r := newRepository(t)
	r.write("outbox/outbox.go", "package outbox\n")
	require.NoError(t, r.check())
}

func TestAnIncompatibleChangeMustBeInTheChangelog(t *testing.T) {
	r := newRepository(t)
	r.git("tag", "v0.1.0")
	require.NoError(t, r.check())

	r.write("outbox/outbox.go", "package outbox\n\nfunc Write(n int64) {}\n\ntype Row struct{ Name string }\n\nfunc New() {}\n")
	r.write("internal/x/x.go", "package x\n")
	r.write("cmd/m/main.go", "package main\n\nfunc main() {}\n")
	err := r.check()
	require.ErrorContains(t, err, "list `outbox.Read` under")
	require.ErrorContains(t, err, "list `outbox.Write` under")
	require.ErrorContains(t, err, "list `outbox.Row.ID` under")
	require.NotContains(t, err.Error(), "Hidden")
	require.NotContains(t, err.Error(), "Start")

	r.write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n### Breaking changes\n\n- `outbox.Write` takes an int64, `outbox.Read` is gone.\n\n### Other\n\n- `outbox.Row.ID`\n")
	err = r.check()
	require.ErrorContains(t, err, "list `outbox.Row.ID` under")
	require.NotContains(t, err.Error(), "outbox.Write")

	r.write("CHANGELOG.md", "# Changelog\n\n## 0.2.0 - 2027-01-31\n\n### Breaking changes\n\n- `outbox.Write`, `outbox.Read`, `outbox.Row.ID`\n\n## 0.1.0\n")
	require.NoError(t, r.check())
}

func TestAPatchMayBreakNothing(t *testing.T) {
	r := newRepository(t)
	r.git("tag", "v0.1.0")
	r.write("CHANGELOG.md", "# Changelog\n\n## 0.1.1 - 2027-01-31\n\n### Breaking changes\n\n- `outbox.Read`\n\n## 0.1.0\n")
	r.write("outbox/outbox.go", "package outbox\n\nfunc Write(n int) {}\n\ntype Row struct{ ID int }\n")
	require.ErrorContains(t, r.check(), "is a patch of v0.1.0")
}

func TestARemovedPackageIsAnIncompatibleChange(t *testing.T) {
	r := newRepository(t)
	r.write("retry/retry.go", "package retry\n\nfunc Do() {}\n")
	r.commit()
	r.git("tag", "v0.9.0")
	r.git("tag", "v0.10.0")
	r.git("tag", "v0.11.0-rc.1")
	require.NoError(t, os.RemoveAll(filepath.Join(r.folder, "retry")))
	err := r.check()
	require.ErrorContains(t, err, "list `retry` under")
	r.write("CHANGELOG.md", "# Changelog\n\n## 0.10.1\n")
	require.ErrorContains(t, r.check(), "v0.10.0", "the newest version, not the last in the alphabet")
}
