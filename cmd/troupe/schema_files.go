package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/avsc"
)

// Limits on input.
const (
	maxSchema  = 1 << 20 // bytes of a file
	maxSchemas = 10_000  // files
)

// A schemaFile is one .avsc file with the full name of its record.
type schemaFile struct{ path, subject, avsc string }

// readFiles reads files, and all .avsc files of folders, in the order of their paths. It refuses a record that is in two files.
func readFiles(paths []string) ([]schemaFile, error) {
	var names []string
	for _, p := range paths {
		found, err := avscFiles(p)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("no .avsc file in %s", strings.Join(paths, ", "))
	}
	files := make([]schemaFile, 0, len(names))
	for _, name := range names {
		avsc, err := readFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, schemaFile{path: name, avsc: avsc})
	}
	return files, name(files)
}

func avscFiles(path string) (names []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	err = filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(at) == ".avsc" {
			names = append(names, at)
		}
		if len(names) > maxSchemas {
			return fmt.Errorf("%s: more than %d files", path, maxSchemas)
		}
		return err
	})
	return names, err
}

func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxSchema+1))
	if err == nil && len(text) > maxSchema {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxSchema)
	}
	return string(text), err
}

// name sets the subjects.
func name(files []schemaFile) error {
	by := make(map[string]string)
	for i := range files {
		f := &files[i]
		subject, err := avsc.Subject(f.avsc)
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		if first, twice := by[subject]; twice {
			return fmt.Errorf("%s: %s is described in %s already", f.path, subject, first)
		}
		by[subject], f.subject = f.path, subject
	}
	return nil
}

// places holds histories of files and revisions: by subject, oldest first.
type places map[string][]avsc.Version

func (p places) versions(_ context.Context, subject string) ([]avsc.Version, error) {
	return p[subject], nil
}

// level returns the level that a running flow needs, for any number of earlier versions.
func (places) level(context.Context, string) (avsc.Level, error) {
	return avsc.FullTransitive, nil
}

func readHistory(ctx context.Context, against, paths []string) (places, error) {
	all := make(places)
	for _, place := range against {
		var files []schemaFile
		var err error
		revision, git := strings.CutPrefix(place, "git:")
		if git {
			files, err = readRevision(ctx, revision, paths)
		} else {
			files, err = readFiles([]string{place})
		}
		if err != nil {
			return nil, fmt.Errorf("--against %s: %w", place, err)
		}
		for _, f := range files {
			label := f.path
			if git {
				label = revision
			}
			all[f.subject] = append(all[f.subject], avsc.Version{Label: label, Avsc: f.avsc})
		}
	}
	return all, nil
}

// readRevision reads the same paths from a revision of the git repository that contains them. A path that did not exist then is
// no error.
func readRevision(ctx context.Context, revision string, paths []string) (files []schemaFile, err error) {
	if revision == "" {
		return nil, errors.New("want git:REVISION, such as git:origin/main")
	}
	for _, path := range paths {
		folder, base := path, "."
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if !info.IsDir() {
			folder, base = filepath.Split(path)
			folder = filepath.Clean(folder) // "" is "."
		}
		commit, err := git(ctx, folder, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
		if err != nil {
			return nil, fmt.Errorf("no such revision in the repository of %s: %w", path, err)
		}
		hash := strings.TrimSpace(commit)
		listed, err := git(ctx, folder, "ls-tree", "-r", "-z", "--name-only", hash, "--", base)
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Split(strings.TrimSuffix(listed, "\x00"), "\x00") {
			if name == "" || base == "." && filepath.Ext(name) != ".avsc" {
				continue
			}
			avsc, err := git(ctx, folder, "cat-file", "blob", hash+":./"+name)
			if err != nil {
				return nil, err
			}
			files = append(files, schemaFile{path: filepath.Join(folder, name), avsc: avsc})
		}
	}
	return files, name(files)
}

func git(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stderr.String())
		if len(said) > 300 {
			said = strings.ToValidUTF8(said[:300], "") + "…"
		}
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return stdout.String(), nil
}
