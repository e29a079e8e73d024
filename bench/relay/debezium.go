package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-go/troupe/bench/harness"
)

const debeziumVersion = "3.6.0.Final"

//go:embed debezium/*.properties
var properties embed.FS

// A debezium is Debezium Server with its EventRouter. It connects to Postgres over TCP: its driver supports no sockets.
type debezium struct {
	name  string
	reads table
	files []string // of debezium/, besides base
	jvm   []string
	java  string
	home  string // where it was unpacked
}

func (d *debezium) String() string { return d.name }
func (d *debezium) table() table   { return d.reads }

const slot = "bench_debezium"

// prime creates its publication and its slot.
func (d *debezium) prime(ctx context.Context, b *bed) error {
	return harness.Execute(ctx, b.socketURL(),
		"CREATE PUBLICATION "+slot+" FOR TABLE "+d.reads.name.Sanitize()+" WITH (publish = 'insert', publish_via_partition_root = true)",
		"SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
}

func (d *debezium) start(ctx context.Context, b *bed) (*program, error) {
	home := filepath.Join(b.dir, b.name+"-debezium")
	if err := os.MkdirAll(filepath.Join(home, "config"), 0o700); err != nil {
		return nil, err
	}
	text, err := d.configuration(b)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(home, "config", "application.properties"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	path := fmt.Sprintf("%s/debezium-server-dist-%s-runner.jar:%s/lib/*", d.home, debeziumVersion, d.home)
	args := append([]string{"-Xmx1g", "--add-opens", "java.base/java.lang=ALL-UNNAMED"}, d.jvm...)
	cmd := exec.Command(d.java, append(args, "-cp", path, "io.debezium.server.Main")...)
	cmd.Dir = home
	p, err := b.run("debezium", cmd)
	if err != nil {
		return nil, err
	}
	p.begun = func(ctx context.Context) (bool, error) { return b.reads(ctx), nil }
	return p, nil
}

// configuration returns the files, and the settings of this run.
func (d *debezium) configuration(b *bed) (string, error) {
	var text strings.Builder
	for _, name := range append([]string{"base"}, d.files...) {
		part, err := properties.ReadFile("debezium/" + name + ".properties")
		if err != nil {
			return "", err
		}
		text.Write(part)
	}
	address, err := url.Parse(b.Postgres.URL(b.name))
	if err != nil {
		return "", err
	}
	password, _ := address.User.Password()
	port, err := harness.FreePorts(2)
	if err != nil {
		return "", err
	}
	for _, line := range [][2]string{
		{"debezium.source.database.hostname", address.Hostname()},
		{"debezium.source.database.port", address.Port()},
		{"debezium.source.database.user", address.User.Username()},
		{"debezium.source.database.password", password},
		{"debezium.source.database.dbname", b.name},
		{"debezium.source.slot.name", slot},
		{"debezium.source.publication.name", slot},
		{"debezium.sink.kafka.producer.bootstrap.servers", strings.Join(b.addrs, ",")},
		{"quarkus.http.port", strconv.Itoa(port)},
	} {
		fmt.Fprintf(&text, "%s=%s\n", line[0], line[1])
	}
	return text.String(), nil
}

// findDebezium returns the paths of Java and Debezium. It fetches Debezium once with Maven, and keeps it in the user's cache
// folder.
func findDebezium(ctx context.Context) (java, home string, err error) {
	if java, err = findJava(ctx); err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	home = filepath.Join(cache, "troupe", "debezium-server-"+debeziumVersion)
	if _, err := os.Stat(home); err == nil {
		return java, home, nil // complete: it was unpacked under another name
	}
	if err := fetchDebezium(ctx, home); err != nil {
		return "", "", fmt.Errorf("fetch Debezium: %w", err)
	}
	return java, home, nil
}

func fetchDebezium(ctx context.Context, home string) error {
	if _, err := exec.LookPath("mvn"); err != nil {
		return err
	}
	// A newer plugin needs a parent that is not on Maven Central.
	const plugin = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
	fmt.Println("fetching Debezium, 780 MB, once")
	_, err := harness.Output(ctx, "mvn", "-q", "-B", plugin, "-Dartifact=io.debezium:debezium-server-dist:"+debeziumVersion+":tar.gz", "-Dtransitive=false")
	if err != nil {
		return err
	}
	repository, err := harness.Output(ctx, "mvn", "-q", "-B", "help:evaluate", "-Dexpression=settings.localRepository", "-DforceStdout")
	if err != nil {
		return err
	}
	repository = escapes.ReplaceAllString(repository, "")
	archive := filepath.Join(repository, "io/debezium/debezium-server-dist", debeziumVersion, "debezium-server-dist-"+debeziumVersion+".tar.gz")
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(filepath.Dir(home), "debezium-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	_, err = harness.Output(ctx, "tar", "-C", partial, "-xzf", archive, "--strip-components=1", "debezium-server/lib",
		"debezium-server/debezium-server-dist-"+debeziumVersion+"-runner.jar")
	if err != nil {
		return err
	}
	if err := os.Rename(partial, home); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// escapes matches what Maven prints to colour a terminal.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

const leastJava = 21

// findJava searches JAVA_HOME, PATH and the folders of Linux distributions.
func findJava(ctx context.Context) (string, error) {
	var candidates []string
	if home := os.Getenv("JAVA_HOME"); home != "" {
		candidates = append(candidates, filepath.Join(home, "bin", "java"))
	}
	candidates = append(candidates, "java")
	installed, _ := filepath.Glob("/usr/lib/jvm/*/bin/java")
	slices.Reverse(installed)
	for _, java := range append(candidates, installed...) {
		said, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
		if err == nil && javaVersion(string(said)) >= leastJava {
			return java, nil
		}
	}
	return "", fmt.Errorf("no Java %d or newer in JAVA_HOME, on PATH or in /usr/lib/jvm", leastJava)
}

var javaRelease = regexp.MustCompile(`version "(\d+)`)

// javaVersion returns the version in the output of java -version, or 0.
func javaVersion(said string) int {
	found := javaRelease.FindStringSubmatch(said)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}
