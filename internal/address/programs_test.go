package address_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// marker is part of the password in every address of this file.
const marker = "s3cr3t"

// broken has invalid addresses by kind. Each is refused before a program connects to anything.
var broken = map[string][]string{
	"database": {
		"postgres://u:" + marker + "@h:port/d",
		"postgres://u:" + marker + "%zz@h/d",
		"postgres://u:x " + marker + "@h/d",
		"postgres://u:12/" + marker + "@h/d",
		"postgres://u:x/" + marker + "@h/d",
		"postgres:/u:" + marker + "@h/d",
		"u:" + marker + "@h/d",
		"host=h port=port password=" + marker,
		"host=h password='" + marker,
		"host=u:" + marker + "@h dbname=d",
		"postgres://u:" + marker + "@h/d?sslmode=all",
		"postgres://u:" + marker + "@h/d?sslrootcert=/no/such/file",
		marker,
	},
	"brokers": {
		"u:" + marker + "@h", "u:" + marker + "@h:9092", "h:9092,u:" + marker + "@h:9092", "kafka://u:" + marker + "@h:9092", "u:" + marker,
		"u=" + marker + ":9092",
	},
	"registry": {
		"http://u:" + marker + "@h:port", "http://u:" + marker + "@h h", "u:" + marker + "@h:8081", "://" + marker, "http://h/?token=" + marker,
		"http://u:" + marker + "@registry.example",
	},
	"url":        {"http://u:" + marker + "@h:port", "http://u:" + marker + "@h h", "u:" + marker + "@h:8081", "://" + marker, "http://h:80?token=" + marker, "http://u:" + marker + "@h"},
	"alert":      {"http://u:" + marker + "@h:port", "chat.example/" + marker, "http://u:" + marker + "@chat.example/x", "://" + marker},
	"headers":    {"authorization", "authorization " + marker, "author ization=" + marker, "authorization=%zz" + marker, "a=b," + marker, marker},
	"attributes": {marker, "a=b," + marker, "a=%zz" + marker},
	"number":     {marker, "1" + marker, "1 " + marker},
	"pem":        {"/no/such/" + marker, "-----BEGIN PRIVATE KEY-----\n" + marker + "\n-----END PRIVATE KEY-----\n", "a\n" + marker},
	"key":        {"-----BEGIN PRIVATE KEY-----\n" + marker + "\n-----END PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\r\n" + marker, "a\n" + marker},
	"listen":     {"u:" + marker + "@127.0.0.1", "u:" + marker + "@127.0.0.1:0", "http://u:" + marker + "@127.0.0.1:0"},
}

// An entry is a setting that takes an address: a variable or a flag, and the command that reads it. prefix is the text before the
// address, and environ the other variables that the command needs.
type entry struct {
	kind, variable, flag, prefix string
	args, environ                []string
}

// TestNoProgramRepeatsABrokenAddress gives broken addresses to every program, in every variable and flag that takes one.
func TestNoProgramRepeatsABrokenAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	built, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir, "../../cmd/...").CombinedOutput()
	require.NoError(t, err, string(built))

	const nowhere = "DATABASE_URL=postgres://u@127.0.0.1:1/d"
	const nobody = "KAFKA_BROKERS=127.0.0.1:1"
	both := []string{nowhere, nobody}
	relay := append([]string{"OUTBOX_RELAY_ADMIN=127.0.0.1:0"}, both...)
	demo := append([]string{"SCHEMA_REGISTRY_URL=http://127.0.0.1:1"}, both...)
	traced := append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, demo...)
	ambassador := append([]string{"TROUPE_AMBASSADOR_HOP=order.shipping", "TROUPE_AMBASSADOR_SERVICE_URL=http://127.0.0.1:1"}, both...)
	settings := filepath.Join(t.TempDir(), "ambassador.yaml")
	require.NoError(t, os.WriteFile(settings, []byte("commands: [{type: shipping.Ship, path: /ship}]"), 0o600))
	ambassador = append(ambassador, "TROUPE_AMBASSADOR_CONFIG="+settings)
	reactions := filepath.Join(t.TempDir(), "reactions.json")
	require.NoError(t, os.WriteFile(reactions, []byte(`{"hop": "f.a", "starts": [{"topic": "f.a.events", "type": "Ping"}]}`), 0o600))

	programs := map[string][]entry{"troupe": {
		{kind: "database", variable: "DATABASE_URL", flag: "--database-url", args: []string{"dlq", "list"}},
		{kind: "database", flag: "--database-url", args: []string{"saga", "list"}},
		{kind: "database", flag: "--database-url", args: []string{"held", "list"}},
		{kind: "database", flag: "--database-url", args: []string{"inbox", "show", "a"}},
		{kind: "registry", variable: "SCHEMA_REGISTRY_URL", flag: "--registry", args: []string{"dlq", "list"}, environ: both},
		{kind: "registry", variable: "SCHEMA_REGISTRY_URL", flag: "--registry", args: []string{"schema", "diff", "."}},
		{kind: "database", variable: "TROUPE_DATABASES", flag: "--database", prefix: "order=", args: []string{"trace", "o-1"}},
		{kind: "brokers", variable: "KAFKA_BROKERS", flag: "--brokers", args: []string{"trace", "o-1", "--flow", "order"}},
		{kind: "registry", variable: "SCHEMA_REGISTRY_URL", flag: "--registry", args: []string{"trace", "o-1", "--flow", "order", "--brokers", "127.0.0.1:1"}},
		{kind: "database", variable: "TROUPE_DATABASES", flag: "--database", prefix: "order=", args: []string{"console", "--listen", "127.0.0.1:0"}},
		{kind: "database", variable: "TROUPE_WATCH_DATABASE", flag: "--watch", args: []string{"console", "--listen", "127.0.0.1:0", "--database", "order=postgres://u@127.0.0.1:1/d"}},
		{kind: "brokers", variable: "KAFKA_BROKERS", flag: "--brokers", args: []string{"console", "--listen", "127.0.0.1:0", "--flow", "order"}},
		{kind: "registry", variable: "SCHEMA_REGISTRY_URL", flag: "--registry", args: []string{"console", "--listen", "127.0.0.1:0", "--database", "order=postgres://u@127.0.0.1:1/d"}},
		{kind: "listen", flag: "--listen", args: []string{"console", "--database", "order=postgres://u@127.0.0.1:1/d"}},
		{kind: "database", variable: "TROUPE_POSTGRES", flag: "--postgres", args: []string{"demo"}},
		{kind: "brokers", variable: "TROUPE_KAFKA", flag: "--brokers", args: []string{"demo"}},
		{kind: "registry", variable: "TROUPE_REGISTRY", flag: "--registry", args: []string{"demo"}},
		{kind: "listen", flag: "--console", args: []string{"demo"}},
		{kind: "brokers", flag: "--brokers", args: []string{"dev", "shop"}},
		{kind: "listen", flag: "--console", args: []string{"dev", "shop"}},
		{kind: "database", variable: "DATABASE_URL", flag: "--database-url", args: []string{"doctor"}},
		{kind: "brokers", variable: "KAFKA_BROKERS", flag: "--brokers", args: []string{"doctor"}},
		{kind: "registry", variable: "SCHEMA_REGISTRY_URL", flag: "--registry", args: []string{"doctor"}, environ: both},
		{kind: "brokers", variable: "KAFKA_BROKERS", flag: "--brokers", args: []string{"watch", "--reactions", reactions}, environ: both},
		{kind: "database", variable: "DATABASE_URL", flag: "--database-url", args: []string{"watch", "--reactions", reactions}, environ: both},
		{kind: "listen", flag: "--admin", args: []string{"watch", "--reactions", reactions}, environ: both},
		{kind: "database", variable: "DATABASE_URL", flag: "--database-url", args: []string{"ambassador"}, environ: ambassador},
		{kind: "brokers", variable: "KAFKA_BROKERS", flag: "--brokers", args: []string{"ambassador"}, environ: ambassador},
		{kind: "registry", variable: "SCHEMA_REGISTRY_URL", flag: "--registry", args: []string{"ambassador"}, environ: ambassador},
		{kind: "url", variable: "TROUPE_AMBASSADOR_SERVICE_URL", flag: "--service-url", args: []string{"ambassador"}, environ: ambassador},
		{kind: "alert", variable: "ALERT_URL", flag: "--alert-url", args: []string{"ambassador"}, environ: ambassador},
		{kind: "listen", variable: "TROUPE_AMBASSADOR_ADMIN", flag: "--admin", args: []string{"ambassador"}, environ: ambassador},
		{kind: "listen", variable: "TROUPE_AMBASSADOR_OUTBOX", flag: "--outbox", args: []string{"ambassador"}, environ: ambassador},
	}}
	for _, command := range []string{"run", "check", "status", "migrate"} {
		programs["outbox-relay"] = append(programs["outbox-relay"], entry{kind: "database", variable: "DATABASE_URL", flag: "--database-url", args: []string{command}, environ: relay})
	}
	programs["outbox-relay"] = append(programs["outbox-relay"],
		entry{kind: "brokers", variable: "KAFKA_BROKERS", flag: "--brokers", args: []string{"run"}, environ: relay},
		entry{kind: "brokers", variable: "KAFKA_BROKERS", flag: "--brokers", args: []string{"check"}, environ: relay},
		entry{kind: "alert", variable: "ALERT_URL", flag: "--alert-url", args: []string{"run"}, environ: relay},
		entry{kind: "listen", variable: "OUTBOX_RELAY_ADMIN", flag: "--admin", args: []string{"run"}, environ: relay},
	)
	// The text of a key where the path of its file is expected.
	for _, name := range []string{"DATABASE_TLS_KEY", "DATABASE_TLS_CA", "KAFKA_TLS_KEY", "KAFKA_TLS_CA", "KAFKA_PASSWORD_FILE"} {
		flag := "--" + strings.ReplaceAll(strings.ToLower(name), "_", "-")
		programs["outbox-relay"] = append(programs["outbox-relay"],
			entry{kind: "key", variable: "OUTBOX_RELAY_" + name, flag: flag, args: []string{"run"}, environ: relay})
		programs["troupe"] = append(programs["troupe"],
			entry{kind: "key", variable: "TROUPE_AMBASSADOR_" + name, flag: flag, args: []string{"ambassador"}, environ: ambassador})
	}
	programs["troupe"] = append(programs["troupe"], entry{kind: "key", flag: "--token-file", args: []string{"console", "--database", "order=postgres://u@127.0.0.1:1/d"}})
	for _, service := range []string{"demo-order", "demo-payment", "demo-inventory", "demo-shipping"} {
		programs[service] = []entry{
			{kind: "database", variable: "DATABASE_URL", flag: "--database-url", environ: demo},
			{kind: "brokers", variable: "KAFKA_BROKERS", flag: "--brokers", environ: demo},
			{kind: "registry", variable: "SCHEMA_REGISTRY_URL", flag: "--registry", environ: demo},
			{kind: "url", variable: "OTEL_EXPORTER_OTLP_ENDPOINT", flag: "--otel-exporter-otlp-endpoint", environ: demo},
			{kind: "url", variable: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", environ: traced},
			{kind: "headers", variable: "OTEL_EXPORTER_OTLP_HEADERS", environ: traced},
			{kind: "headers", variable: "OTEL_EXPORTER_OTLP_TRACES_HEADERS", environ: traced},
			{kind: "attributes", variable: "OTEL_RESOURCE_ATTRIBUTES", environ: traced},
			{kind: "number", variable: "OTEL_EXPORTER_OTLP_TIMEOUT", environ: traced},
			{kind: "number", variable: "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", environ: traced},
			{kind: "number", variable: "OTEL_TRACES_SAMPLER", environ: traced},
			{kind: "number", variable: "OTEL_TRACES_SAMPLER_ARG", environ: traced},
			{kind: "pem", variable: "OTEL_EXPORTER_OTLP_CERTIFICATE", environ: traced},
			{kind: "pem", variable: "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", environ: traced},
			{kind: "pem", variable: "OTEL_EXPORTER_OTLP_CLIENT_KEY", environ: append([]string{"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/no/such/file"}, traced...)},
			{kind: "alert", variable: "ALERT_URL", flag: "--alert-url", environ: demo},
			{kind: "listen", variable: "DEMO_LISTEN", flag: "--listen", environ: demo},
			// An address where none is expected is not repeated either.
			{kind: "database", args: []string{"--"}, environ: demo},
		}
	}
	programs["troupe"] = append(programs["troupe"], entry{kind: "database", args: []string{"dlq", "list", "--"}, environ: both})
	programs["outbox-relay"] = append(programs["outbox-relay"], entry{kind: "database", args: []string{"run", "--"}, environ: relay})

	for program, entries := range programs {
		tried := make(map[string]bool) // kinds of which this program got every text
		for _, e := range entries {
			texts := broken[e.kind]
			if tried[e.kind] || strings.HasPrefix(program, "demo-") && program != "demo-order" {
				texts = texts[:3]
			}
			tried[e.kind] = true
			name := strings.Join(append(append([]string{program}, e.args...), e.variable+e.flag), " ")
			t.Run(strings.ReplaceAll(name, "/", "|"), func(t *testing.T) {
				t.Parallel()
				for i, text := range texts {
					if e.variable != "" {
						refused(t, e, filepath.Join(dir, program), e.args, append(e.environ[:len(e.environ):len(e.environ)], e.variable+"="+e.prefix+text))
					}
					// A flag is the same setting as its variable.
					if e.flag != "" && (e.variable == "" || i == 0) {
						refused(t, e, filepath.Join(dir, program), append(e.args[:len(e.args):len(e.args)], e.flag+"="+e.prefix+text), e.environ)
					}
					if e.flag+e.variable == "" && i == 0 {
						refused(t, e, filepath.Join(dir, program), append(e.args[:len(e.args):len(e.args)], text), e.environ)
					}
				}
			})
		}
	}
}

// refused runs a program that must fail with an error that names the setting, without the marker.
func refused(t *testing.T, e entry, program string, args, environ []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // it would connect to an address that it should refuse
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"HOME=" + cmd.Dir, "PATH=" + os.Getenv("PATH")}, environ...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%q %q: %s", args, environ, out)
	require.NotEmpty(t, out)
	require.NotContains(t, strings.ToLower(string(out)), marker, "%q %q", args, environ)
	named := e.variable+e.flag == "" || e.variable != "" && strings.Contains(string(out), e.variable) ||
		e.flag != "" && strings.Contains(string(out), strings.TrimLeft(e.flag, "-"))
	require.True(t, named, "%q %q: it was refused for another setting: %s", args, environ, out)
	if strings.Contains(string(out), "connection refused") || strings.Contains(string(out), "no such host") {
		t.Errorf("%q %q: it tried to connect: %s", args, environ, out)
	}
}
