package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A test of internal/scaffold builds the new service, and runs its tests.
func TestInitMakesAService(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "seats")
	o := finish(t, command(t, nil, "init", folder, "--dry-run", "--output", "json"))
	require.Equal(t, 0, o.status, o.stderr)
	require.Contains(t, o.stdout, `"done":false`)
	require.NoDirExists(t, folder)

	o = finish(t, command(t, nil, "init", folder, "--hop", "cinema.seats", "--module", "example.org/seats"))
	require.Equal(t, 0, o.status, o.stderr)
	for _, name := range []string{"go.mod", "go.sum", "main.go", "handler.go", "handler_test.go", "schema.sql", "go.work", "docker-compose.yml", "README.md", ".gitignore"} {
		require.Contains(t, o.stdout, "  "+name+"\n")
		require.FileExists(t, filepath.Join(folder, name))
	}
	text, err := os.ReadFile(filepath.Join(folder, "handler.go"))
	require.NoError(t, err)
	require.Contains(t, string(text), `topics.MustHop("cinema", "seats")`)
	for name, want := range map[string]string{"go.work": "replace github.com/troupe-go/troupe => ..", "docker-compose.yml": `context: "..`, "README.md": "(cd .."} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		require.Contains(t, string(text), want, "it fits one machine only")
	}
	text, err = os.ReadFile(filepath.Join(folder, "go.mod"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "replace", "it can be committed")
	require.Regexp(t, `troupe-go/troupe v0\.0\.0(-\d{14}-[0-9a-f]{12})?\n`, string(text))
	text, err = os.ReadFile(filepath.Join(folder, ".gitignore"))
	require.NoError(t, err)
	require.Contains(t, string(text), "/go.work\n")
	root, err := os.ReadFile(filepath.Join(folder, "go.work"))
	require.NoError(t, err)
	_, path, _ := strings.Cut(string(root), "=> ")
	path, _, _ = strings.Cut(path, "\n")
	require.FileExists(t, filepath.Join(folder, path, "participant", "participant.go"))
	loyalty := filepath.Join(t.TempDir(), "my services", "loyalty")
	o = finish(t, command(t, nil, "init", loyalty))
	require.Equal(t, 0, o.status, o.stderr)
	require.Contains(t, o.stdout, "Next: cd '"+loyalty+"' && go test ./...")
	text, err = os.ReadFile(filepath.Join(loyalty, "handler.go"))
	require.NoError(t, err)
	require.Contains(t, string(text), `topics.MustHop("booking", "loyalty")`, "two services would share a group")
	o = finish(t, command(t, nil, "init", folder))
	require.Equal(t, 1, o.status, "it is not empty")
	require.Contains(t, o.stderr, "is not empty")

	for args, want := range map[string]string{
		"init":                                      "accepts 1 arg(s), received 0: want troupe init DIR",
		"init Seats":                                `name "Seats"`,
		"init seats --hop seats":                    "want flow.hop",
		"init tickets --reacts-to seats":            "--reacts-to: ",
		"init tickets --reacts-to a.b":              "want another hop",
		"init seats --event Paid":                   "no hop that it reacts to",
		"init a --reacts-to booking.b --event paid": "capital letter",
		"init a --reacts-to booking.b --event shop.ACompleted": "the same name",
		"init seats --troupe /":                                "is no checkout",
		"init seats --module /absolute":                        "module",
	} {
		o := finish(t, command(t, nil, strings.Fields(args)...))
		require.Equal(t, 2, o.status, args)
		require.Contains(t, o.stderr, want, args)
		require.NoDirExists(t, "seats")
	}
}
