// Package arch checks the imports between packages against a plan: imports only go down.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/troupe-go/troupe/"

// house lists the packages of ours that each package may import outside its tests. A package that is missing here, an import that
// is not allowed, and an allowance without an import all fail.
var house = map[string][]string{
	"topics": {},
	"retry":  {},

	"envelope":               {},
	"migrations":             {"internal/address"},
	"schemas":                {"envelope"},
	"internal/demo/messages": {"schemas"},
	"internal/pg":            {"retry"},
	"internal/kafka":         {"envelope"},
	"internal/keyed":         {},
	"internal/pgtext":        {},
	// How the inbox's tables identify a message.
	"internal/inbox": {"envelope", "internal/pgtext"},
	// For a participant and for an operator alike.
	"internal/deadletter": {"envelope", "internal/inbox", "internal/pg", "internal/pgtext", "outbox", "topics"},
	"internal/wal":        {"internal/pg"},
	"internal/expr":       {},
	"internal/plain":      {},
	"internal/address":    {},
	"internal/grants":     {},

	"internal/grants/grantstest": {"internal/grants"},

	"internal/door":  {},
	"internal/lines": {},
	"internal/house": {},

	"outbox": {"envelope"},

	"relay":         {"envelope", "internal/kafka", "internal/pg", "internal/plain", "internal/wal", "outbox", "relay/mapping", "retry", "schemas", "topics"},
	"participant":   {"envelope", "internal/deadletter", "internal/inbox", "internal/kafka", "internal/keyed", "internal/pg", "internal/pgtext", "outbox", "retry", "topics"},
	"alert":         {"retry"},
	"timeline":      {"envelope", "internal/kafka", "outbox", "participant", "schemas", "topics"},
	"relay/mapping": {"envelope"},
	"relay/desk":    {"internal/plain", "outbox", "relay/mapping"},

	"participant/modeltest": {},

	"repair": {"envelope", "internal/deadletter", "internal/inbox", "internal/plain", "internal/pgtext", "outbox", "participant", "topics"},
	"doctor": {"internal/grants", "internal/pg", "migrations", "relay", "schemas", "topics"},

	"telemetry": {"envelope", "participant"},

	"flow":           {"envelope", "flow/reactions", "internal/pg", "participant", "retry", "topics"},
	"flow/reactions": {"internal/lines", "topics"},
	"flow/asyncapi":  {"envelope", "flow/reactions"},
	"flow/graph":     {"flow/reactions", "topics"},
	"flow/verify":    {"flow/reactions", "internal/lines", "topics"},
	"flow/watch":     {"envelope", "flow/reactions", "internal/kafka", "participant", "topics"},

	"ambassador":       {"envelope", "internal/door", "outbox", "participant", "retry", "schemas"},
	"saga":             {"envelope", "internal/expr", "internal/lines", "topics"},
	"saga/coordinator": {"envelope", "internal/keyed", "internal/pg", "internal/plain", "outbox", "participant", "retry", "saga", "topics"},
	"telemetry/sagas":  {"saga", "saga/coordinator"},
	"telemetry/flows":  {"flow/watch"},
	"saga/explore":     {"internal/expr", "saga"},
	"saga/verify":      {"internal/expr", "retry", "saga"},
	"internal/fixture": {"saga", "saga/coordinator"},
	"saga/sagatest":    {"internal/expr", "saga", "saga/coordinator"},

	"internal/demo": {
		"alert", "envelope", "flow", "flow/reactions", "internal/address", "internal/metrics", "internal/traces", "migrations", "participant", "retry", "schemas",
		"internal/demo/messages", "topics",
	},
	"internal/demo/order": {
		"alert", "envelope", "flow", "internal/demo", "outbox", "participant", "saga", "saga/coordinator", "internal/demo/messages", "telemetry/sagas",
		"topics",
	},
	"internal/demo/payment":   {"flow", "internal/demo", "participant", "internal/demo/messages"},
	"internal/demo/inventory": {"flow", "internal/demo", "participant", "internal/demo/messages"},
	"internal/demo/shipping":  {"flow", "internal/demo", "participant", "internal/demo/messages"},

	"console": {
		"flow/watch", "internal/door", "internal/plain", "outbox", "relay/desk", "repair", "saga", "saga/coordinator", "internal/fixture", "saga/verify", "schemas", "timeline",
		"topics",
	},
	"console/browser":        {},
	"console/internal/stage": {"envelope", "flow/reactions", "participant", "retry", "saga", "saga/coordinator", "testkit", "topics"},

	"devstack": {"internal/address", "schemas"},
	"testkit":  {"devstack", "migrations"},

	"saga/coordinator/internal/storetest": {"saga", "saga/coordinator"},

	"testkit/participanttest": {"envelope", "internal/kafka", "outbox", "participant", "testkit", "topics"},

	"internal/docs/manifests":    {},
	"internal/docs/commands":     {},
	"internal/traces":            {},
	"internal/metrics":           {"telemetry"},
	"internal/metrics/catalogue": {},
	"internal/scaffold":          {"topics"},
	"internal/sidecar": {
		"alert", "ambassador", "console", "doctor", "envelope", "internal/address", "internal/door", "internal/grants", "internal/metrics", "internal/pg", "internal/plain", "migrations", "outbox", "participant", "relay", "relay/desk", "relay/mapping",
		"retry", "schemas", "topics",
	},
	"internal/demo/orders": {"internal/demo"},
	"internal/demo/run": {
		"devstack", "flow/reactions", "internal/address", "internal/demo", "internal/demo/inventory", "internal/demo/order", "internal/demo/orders",
		"internal/demo/payment", "internal/demo/shipping", "internal/kafka", "internal/sidecar", "retry", "saga", "topics",
	},

	"cmd/outbox-relay": {"internal/sidecar"},
	"cmd/troupe": {
		"console", "devstack", "doctor", "envelope",
		"flow/asyncapi", "flow/graph", "flow/reactions", "flow/verify", "flow/watch", "internal/address", "internal/demo", "internal/demo/orders",
		"internal/demo/run", "internal/metrics", "internal/plain", "internal/scaffold", "internal/sidecar", "repair", "saga", "saga/coordinator", "saga/explore", "internal/fixture",
		"saga/verify", "schemas", "telemetry/flows", "timeline", "topics",
	},
	"cmd/demo-order":     {"internal/demo", "internal/demo/order"},
	"cmd/demo-payment":   {"internal/demo", "internal/demo/payment"},
	"cmd/demo-inventory": {"internal/demo", "internal/demo/inventory"},
	"cmd/demo-shipping":  {"internal/demo", "internal/demo/shipping"},

	"examples/drone-delivery":    {"devstack", "internal/sidecar", "migrations", "repair"},
	"examples/letter-of-credit":  {"saga"},
	"examples/order-on-postgres": {"devstack", "migrations", "participant", "retry", "saga", "saga/coordinator", "topics"},
}

// light lists packages that importing a library must not pull in, at any depth.
var light = []string{
	"github.com/spf13/cobra", "github.com/prometheus/client_golang", "github.com/docker/",
	"github.com/testcontainers/", "github.com/chromedp/", "github.com/fergusstrange/", "github.com/twmb/franz-go/pkg/kfake",
	"github.com/stretchr/testify", "testing", "go.opentelemetry.io/",
}

var libraries = []string{
	"topics", "retry", "envelope", "schemas", "alert", "migrations", "outbox", "relay", "relay/desk", "relay/mapping", "participant", "repair", "timeline", "doctor",
	"saga", "saga/coordinator", "saga/explore", "saga/verify", "ambassador", "console",
	"flow", "flow/asyncapi", "flow/graph", "flow/reactions", "flow/verify", "flow/watch",
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
	pkgs := list(t)
	for name, p := range pkgs {
		if len(p.GoFiles) == 0 {
			delete(pkgs, name) // only tests
			continue
		}
		allowed, known := house[name]
		if !known {
			t.Errorf("%s stands nowhere in the house: give it a floor", name)
			continue
		}
		var used []string
		for _, i := range p.Imports {
			if of, ours := strings.CutPrefix(i, module); ours {
				used = append(used, of)
				if !slices.Contains(allowed, of) {
					t.Errorf("%s imports %s, which the house does not allow", name, of)
				}
			}
		}
		for _, a := range allowed {
			if !slices.Contains(used, a) {
				t.Errorf("%s may import %s and does not: strike it out", name, a)
			}
		}
	}
	for name := range house {
		if _, there := pkgs[name]; !there {
			t.Errorf("the house lists %s, which is not there", name)
		}
	}
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

// The program chooses the SDK and the exporters of metrics and spans.
func TestTelemetryNeedsNoMoreThanTheAPI(t *testing.T) {
	refused := append(slices.DeleteFunc(slices.Clone(light), func(heavy string) bool { return heavy == "go.opentelemetry.io/" }),
		"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters")
	for _, name := range []string{"telemetry", "telemetry/flows", "telemetry/sagas"} {
		for _, d := range list(t)[name].Deps {
			for _, heavy := range refused {
				if d == heavy || strings.HasPrefix(d, strings.TrimSuffix(heavy, "/")+"/") {
					t.Errorf("importing %s pulls in %s", name, d)
				}
			}
		}
	}
}
