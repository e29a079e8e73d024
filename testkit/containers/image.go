package containers

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const module = "github.com/troupe-go/troupe"

// relayImage is the stage outbox-relay of Troupe's Dockerfile, with a program that is already compiled.
const relayImage = `FROM gcr.io/distroless/static-debian12:nonroot
COPY outbox-relay /app
ENTRYPOINT ["/app"]
CMD ["run"]
`

// buildRelay builds the relay's image, and returns its name. The machine's Go compiles the relay: the tests have compiled many of its
// packages already, and a later build compiles only the changed ones. A build inside Docker compiles all of them, and the
// standard library, after each change.
func buildRelay(ctx context.Context) (_ string, err error) {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	engine, err := provider.Client().ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", err
	}
	provider.Logger.Printf("compiling the relay for linux/%s: the first time, this takes a minute or more", engine.Arch)
	files, err := buildContext(ctx, engine.Arch)
	if err != nil {
		return "", err
	}
	var log strings.Builder
	name, err := provider.BuildImage(ctx, &testcontainers.ContainerRequest{FromDockerfile: testcontainers.FromDockerfile{
		ContextArchive: files, Repo: "troupe-outbox-relay", Tag: "test", KeepImage: true, BuildLogWriter: &log,
	}})
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, log.String())
	}
	return name, nil
}

// buildContext compiles the relay for Linux, and returns a tar archive of it and its Dockerfile.
func buildContext(ctx context.Context, arch string) (_ io.ReadSeeker, err error) {
	folder, err := exec.CommandContext(ctx, "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, fmt.Errorf("folder of the module %s: %w", module, err)
	}
	out, err := os.MkdirTemp("", "troupe-outbox-relay")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	program := filepath.Join(out, "outbox-relay")
	// In the module's own folder, since the go.mod of the service may lack modules that only the relay needs.
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s", "-o", program, "./cmd/outbox-relay")
	build.Dir = strings.TrimSpace(string(folder))
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s in %s: %w\n%s", build, build.Dir, err, text)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	to := tar.NewWriter(&archive)
	err = errors.Join(add(to, "Dockerfile", 0o644, []byte(relayImage)), add(to, "outbox-relay", 0o755, binary), to.Close())
	return bytes.NewReader(archive.Bytes()), err
}

func add(to *tar.Writer, name string, mode int64, content []byte) error {
	if err := to.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := to.Write(content)
	return err
}
