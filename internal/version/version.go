// Package version tells which build of Troupe a program is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// release is the version that the linker sets for a release:
//
//	go build -ldflags "-X github.com/troupe-go/troupe/internal/version.release=v0.1.0"
//
// If it is empty, Read uses the version that Go records: of the module, or of the repository's tag.
var release string

// A Build describes the program that runs.
type Build struct {
	Version  string `json:"version"`            // such as v0.1.0; (devel) if unknown
	Revision string `json:"revision,omitempty"` // 12 characters of the commit, with a + if files were changed; empty if unknown
	Go       string `json:"go"`
	Platform string `json:"platform"` // such as linux/amd64
}

// Read returns the build of the program that calls it.
func Read() Build {
	info, _ := debug.ReadBuildInfo()
	return read(info, release)
}

// read prefers the linker's version, since a build from an archive or in a container has no repository.
func read(info *debug.BuildInfo, release string) Build {
	b := Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		if info.Main.Version != "" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				b.Revision = s.Value[:min(len(s.Value), 12)]
			case s.Key == "vcs.modified" && s.Value == "true":
				b.Revision += "+"
			}
		}
	}
	if release != "" {
		b.Version = release
	}
	return b
}

// String returns the build on one line, without the program's name.
func (b Build) String() string {
	return fmt.Sprintf("%s (%s, %s)", strings.TrimSpace(b.Version+" "+b.Revision), b.Go, b.Platform)
}
