// Package arch checks the imports between packages: they only go down.
package arch

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/troupe-go/troupe/"

var update = flag.Bool("update", false, "rewrite the table of floors in CONTRIBUTING.md")

// floor is one level of the house. A package imports packages of lower floors only, never of its own.
type floor struct {
	name     string // for people
	packages []string
}

// floors lists the levels from the lowest up. A package that no floor lists, a package that is listed twice or does not exist, and
// an import that does not go down all fail. CONTRIBUTING.md shows this list: go test ./internal/arch -update.
var floors = []floor{
	{"names on the wire, Avro schemas, a limit for JSON, and errors without secrets", []string{"internal/ce", "internal/avsc", "internal/jsontext", "internal/payload", "internal/secrets"}},
	{"names, policies, the message, and tools that know nothing of Troupe", []string{
		"topics", "retry", "envelope", "logbridge",
		"internal/address", "internal/door", "internal/expr", "internal/grants", "internal/keyed", "internal/lines", "internal/moments", "internal/plain", "internal/protomark", "internal/registry", "internal/rule",
		"internal/pg/silenttest", "internal/pgtext", "internal/short", "internal/version",
		"internal/metrics/catalogue", "internal/docs/commands", "internal/docs/manifests", "internal/house", "internal/modeltest", "internal/console/browser",
	}},
	{"tables, rows, schemas and declarations; how Postgres and Kafka are used", []string{
		"migrations", "schemas", "saga",
		"internal/admin", "internal/alert", "internal/credentials", "internal/door/doortest", "internal/extension", "internal/grants/grantstest", "internal/inbox", "internal/kafka", "internal/mapping", "internal/outboxrow", "internal/pg", "internal/retention", "internal/retryheader",
		"internal/scaffold", "internal/shapes", "internal/sqlconn", "internal/traces", "schemas/jsonschema", "schemas/protobuf",
	}},
	{"writing the outbox, the replication protocol, checks of sagas, servers for tests", []string{
		"outbox", "schemas/personal", "internal/saga/verify",
		"internal/credentials/oidc", "internal/formats", "internal/wal", "internal/explore", "internal/admin/relaydesk",
		"internal/devstack", "internal/demo/messages",
	}},
	{"dead letters, schedules, and Postgres for the tests", []string{"internal/deadletter", "internal/schedule", "internal/devstack/fetchpostgres"}},
	{"the two that run", []string{"participant", "relay"}},
	{"services of a flow, and decisions on stored sagas", []string{"flow", "internal/decisions"}},
	{"built on a participant; checks of flows; examination and repair", []string{
		"participant/sqltx", "saga/coordinator", "telemetry",
		"internal/ambassador", "internal/flow/asyncapi", "internal/flow/graph", "internal/flow/verify", "internal/flow/watch", "internal/admin/actions", "internal/admin/doctor", "internal/admin/erasure", "internal/admin/rebuilds", "internal/admin/repair", "internal/admin/sagadesk", "internal/admin/timeline",
	}},
	{"tests, and metrics of sagas and flows", []string{
		"saga/sagatest", "telemetry/sagas", "testkit", "internal/fixture", "internal/flow/telemetry", "internal/metrics",
		"examples/letter-of-credit", "examples/order-on-postgres", "examples/travel-booking",
	}},
	{"pages, and the base of the demo's services", []string{"internal/console", "internal/console/stage", "internal/demo", "internal/sagahttp"}},
	{"the sidecar, and the demo's services", []string{
		"internal/sidecar", "internal/demo/order", "internal/demo/payment", "internal/demo/inventory", "internal/demo/shipping", "internal/demo/orders",
	}},
	{"programs", []string{
		"cmd/outbox-relay", "cmd/demo-order", "cmd/demo-payment", "cmd/demo-inventory", "cmd/demo-shipping", "internal/demo/run",
		"examples/drone-delivery",
	}},
	{"the command line", []string{"cmd/troupe"}},
}

// light lists packages that importing a library must not pull in, at any depth.
var light = []string{
	"github.com/spf13/cobra", "github.com/prometheus/client_golang", "github.com/docker/",
	"github.com/testcontainers/", "github.com/chromedp/", "github.com/fergusstrange/", "github.com/twmb/franz-go/pkg/kfake",
	"github.com/stretchr/testify", "testing", "go.opentelemetry.io/", "github.com/tink-crypto/",
}

var libraries = []string{
	"topics", "retry", "envelope", "schemas", "internal/alert", "migrations", "outbox", "relay", "internal/admin/relaydesk", "internal/mapping", "participant", "internal/admin/repair", "internal/admin/timeline", "internal/admin/doctor",
	"saga", "saga/coordinator", "internal/decisions", "internal/admin/sagadesk", "internal/explore", "internal/saga/verify", "internal/ambassador", "internal/console", "logbridge", "participant/sqltx",
	"flow", "internal/flow/asyncapi", "internal/flow/graph", "internal/flow/verify", "internal/flow/watch",
}

type pkg struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) map[string]pkg {
	t.Helper()
	// The test's cached result must not outlive a change elsewhere: go only knows the folders that the test opened.
	require.NoError(t, filepath.WalkDir("../..", func(_ string, _ fs.DirEntry, err error) error { return err }))
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,Deps", module+"...")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	pkgs := make(map[string]pkg)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		require.NoError(t, err)
		pkgs[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

func TestImportsOnlyGoDown(t *testing.T) {
	level := map[string]int{}
	for i, f := range floors {
		for _, name := range f.packages {
			if _, twice := level[name]; twice {
				t.Errorf("%s is on two floors", name)
			}
			level[name] = i
		}
	}
	pkgs := list(t)
	for name, p := range pkgs {
		if len(p.GoFiles) == 0 {
			delete(pkgs, name) // only tests
			continue
		}
		of, known := level[name]
		if !known {
			t.Errorf("%s is on no floor: add it to floors", name)
			continue
		}
		for _, i := range p.Imports {
			if imported, ours := strings.CutPrefix(i, module); ours && level[imported] >= of {
				t.Errorf("%s, on floor %d, imports %s, on floor %d: imports go down", name, of, imported, level[imported])
			}
		}
	}
	for name := range level {
		if _, exists := pkgs[name]; !exists {
			t.Errorf("floors lists %s, which does not exist", name)
		}
	}
}

// TestContributingShowsTheFloors compares the picture of the house in CONTRIBUTING.md with floors.
func TestContributingShowsTheFloors(t *testing.T) {
	var picture strings.Builder
	for i, f := range slices.Backward(floors) {
		fmt.Fprintf(&picture, "| %d | %s | `%s` |\n", i, f.name, strings.Join(f.packages, "` `"))
	}
	const file, begin, end = "../../CONTRIBUTING.md", "|---|---|---|\n", "\n<!-- end of the floors -->"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, "CONTRIBUTING.md has no table of floors")
	_, after, found := strings.Cut(rest, end)
	require.True(t, found, "CONTRIBUTING.md does not mark the end of the floors")
	want := before + begin + picture.String() + end + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text), "stale: go test ./internal/arch -update")
}

func TestLibrariesStayLight(t *testing.T) {
	pkgs := list(t)
	for _, name := range libraries {
		for _, d := range pkgs[name].Deps {
			for _, heavy := range light {
				if d == heavy || strings.HasPrefix(d, strings.TrimSuffix(heavy, "/")+"/") {
					t.Errorf("importing %s pulls in %s", name, d)
				}
			}
		}
	}
}

// TestTheBaseLibrariesImportNoProtobuf: a service with Avro or JSON links no packages of Protobuf. They are needed by schemas/protobuf, by
// schemas/personal, and by sagas, whose expressions are CEL.
func TestTheBaseLibrariesImportNoProtobuf(t *testing.T) {
	pkgs := list(t)
	for _, name := range []string{"outbox", "participant", "relay", "schemas", "flow"} {
		require.Contains(t, pkgs, name)
		for _, d := range pkgs[name].Deps {
			if strings.HasPrefix(d, "google.golang.org/protobuf/") {
				t.Errorf("importing %s pulls in %s", name, d)
			}
		}
	}
}

// TestProgramsWithoutSagasLinkNoExpressions: only programs that run or edit sagas link CEL, the language of their expressions.
func TestProgramsWithoutSagasLinkNoExpressions(t *testing.T) {
	pkgs := list(t)
	for _, name := range []string{"outbox", "participant", "relay", "flow", "telemetry", "internal/flow/telemetry", "cmd/outbox-relay"} {
		require.NotEmpty(t, pkgs[name].Deps, name)
		for _, d := range pkgs[name].Deps {
			if d == module+"saga" || strings.HasPrefix(d, "cel.dev/") {
				t.Errorf("%s pulls in %s", name, d)
			}
		}
	}
}

// TestTheRelayUsesNoTemplates: a template calls methods by names that the linker does not know, so that it keeps all exported methods of
// all types. The relay's program is 4.6 MB larger then. cobra uses templates only if a program sets one.
func TestTheRelayUsesNoTemplates(t *testing.T) {
	pkgs := list(t)
	for _, d := range pkgs["cmd/outbox-relay"].Deps {
		name, ours := strings.CutPrefix(d, module)
		if ours {
			require.NotContains(t, pkgs[name].Imports, "text/template", name)
			require.NotContains(t, pkgs[name].Imports, "html/template", name)
		}
	}
}

// The relay is another process: no package that a service links may import it, at any depth.
func TestAParticipantNeverImportsTheRelay(t *testing.T) {
	pkgs := list(t)
	for name, p := range pkgs {
		if name != "participant" && !strings.HasPrefix(name, "internal/demo/") {
			continue
		}
		if name == "internal/demo/run" {
			continue // it runs all of them
		}
		require.NotContains(t, p.Deps, module+"relay", "%s: the relay is another process", name)
	}
}

// Which driver of database/sql a service uses, and whether its tests use Docker, is its own decision.
func TestLibrariesNameNoDriver(t *testing.T) {
	pkgs := list(t)
	for _, name := range []string{"outbox", "participant", "participant/sqltx", "relay"} {
		require.NotEmpty(t, pkgs[name].Deps, name)
		for _, d := range pkgs[name].Deps {
			for _, driver := range []string{
				"github.com/jackc/pgx/v5/stdlib", "github.com/lib/pq", "gorm.io/", "github.com/uptrace/", "entgo.io/", "github.com/moby/",
			} {
				if d == driver || strings.HasPrefix(d, strings.TrimSuffix(driver, "/")+"/") {
					t.Errorf("importing %s pulls in %s", name, d)
				}
			}
		}
	}
	for _, name := range []string{"participant", "relay"} {
		require.NotContains(t, pkgs[name].Imports, "database/sql", "%s: outbox, sqltx and sqlconn know it", name)
		require.NotContains(t, pkgs[name].Imports, module+"internal/sqlconn", "%s: only outbox and sqltx import it", name)
	}
}

// Identity providers and clouds are the programs' settings. A service gives its own functions to franz-go and pgx.
func TestLibrariesKnowNoIdentityProvider(t *testing.T) {
	pkgs := list(t)
	for _, name := range libraries {
		for _, d := range pkgs[name].Deps {
			for _, refused := range []string{"golang.org/x/oauth2", "github.com/twmb/franz-go/pkg/sasl/aws", "github.com/aws/", "cloud.google.com/", "github.com/Azure/"} {
				if d == refused || strings.HasPrefix(d, strings.TrimSuffix(refused, "/")+"/") {
					t.Errorf("importing %s pulls in %s", name, d)
				}
			}
		}
	}
}

// The program chooses the SDK and the exporters of metrics and spans.
func TestTelemetryNeedsNoMoreThanTheAPI(t *testing.T) {
	refused := append(slices.DeleteFunc(slices.Clone(light), func(heavy string) bool { return heavy == "go.opentelemetry.io/" }),
		"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters")
	for _, name := range []string{"telemetry", "internal/flow/telemetry", "telemetry/sagas"} {
		for _, d := range list(t)[name].Deps {
			for _, heavy := range refused {
				if d == heavy || strings.HasPrefix(d, strings.TrimSuffix(heavy, "/")+"/") {
					t.Errorf("importing %s pulls in %s", name, d)
				}
			}
		}
	}
}
