package containers

import (
	"archive/tar"
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

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const module = "github.com/troupe-go/troupe"

// buildRelay builds the relay's image from the module's files, and returns its name.
func buildRelay(ctx context.Context) (_ string, err error) {
	folder, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("folder of the module %s: %w", module, err)
	}
	files, err := buildContext(strings.TrimSpace(string(folder)))
	if err != nil {
		return "", err
	}
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	var log strings.Builder
	name, err := provider.BuildImage(ctx, &testcontainers.ContainerRequest{FromDockerfile: testcontainers.FromDockerfile{
		ContextArchive: files, Repo: "troupe-outbox-relay", Tag: "test", KeepImage: true, BuildLogWriter: &log,
		BuildOptionsModifier: func(o *client.ImageBuildOptions) { o.Target = "outbox-relay" },
	}})
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, log.String())
	}
	return name, nil
}

// buildContext returns the files of a folder that its .dockerignore does not exclude, as a tar archive. testcontainers would exclude all
// folders here, since it does not apply a pattern such as !**/*.go to their files.
func buildContext(folder string) (io.ReadSeeker, error) {
	ignore, err := os.ReadFile(filepath.Join(folder, ".dockerignore"))
	if err != nil {
		return nil, err
	}
	suffixes := []string{"Dockerfile"}
	for _, line := range strings.Fields(string(ignore)) {
		if name, ok := strings.CutPrefix(line, "!"); ok {
			suffixes = append(suffixes, strings.TrimPrefix(name, "**/*"))
		}
	}
	var archive bytes.Buffer
	to := tar.NewWriter(&archive)
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case d.IsDir() && path != folder && (strings.HasPrefix(name, ".") || name == "node_modules" || isModule(path)):
			return fs.SkipDir
		case !d.Type().IsRegular() || !slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) }):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if err := to.WriteHeader(&tar.Header{Name: filepath.ToSlash(inside), Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = to.Write(text)
		return err
	})
	if err := errors.Join(err, to.Close()); err != nil {
		return nil, err
	}
	return bytes.NewReader(archive.Bytes()), nil
}

// isModule reports whether a folder is a module of its own, such as this package.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}
