package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/registry"
	"github.com/troupe-go/troupe/testkit"
)

const (
	fieldID   = `{"name":"id","type":"string"}`
	fieldNote = `{"name":"note","type":"string","default":""}`
	fieldMust = `{"name":"must","type":"int"}`
)

func record(name string, fields ...string) string {
	return fmt.Sprintf(`{"type":"record","name":%q,"fields":[%s]}`, name, strings.Join(fields, ","))
}

// put writes files into a folder and returns its path.
func put(t *testing.T, folder string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return folder
}

// schema runs a command in a folder.
func schema(t *testing.T, folder string, env []string, args ...string) outcome {
	t.Helper()
	cmd := command(t, env, append([]string{"schema"}, args...)...)
	cmd.Dir = folder
	o := finish(t, cmd)
	require.NotContains(t, o.stderr, "goroutine")
	return o
}

func TestSchemaCheckNamesFieldReasonAndRemedy(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{
		"v1/Order.avsc":  record("shop.Order", fieldID),
		"v2/Order.avsc":  record("shop.Order", fieldID, fieldNote),
		"v3/order.avsc":  record("shop.Order", fieldID, `{"name":"note","type":"string"}`),
		"v3/Parcel.avsc": record("shop.Parcel", fieldID),
		"v3/README.md":   "not a schema",
	})
	o := schema(t, dir, nil, "check", "--against", "v1", "--against", "v2", "v3")
	require.Equal(t, 1, o.status, o.stderr)
	require.Empty(t, o.stderr)
	require.Equal(t, `new   shop.Parcel
FAIL  shop.Order (FULL_TRANSITIVE) in v3/order.avsc
      note: it is new and has no default for messages that do not have it
        between: readers of the new version, messages of v1/Order.avsc
        remedy:  give it one, such as "default": ""
`, o.stdout)

	o = schema(t, dir, nil, "check", "--against", "v1", "--against", "v2", "--level", "full", "v3/order.avsc")
	require.Equal(t, outcome{0, "ok    shop.Order (FULL)\n", ""}, o, "the latest only")

	o = schema(t, dir, nil, "check", "--against", "v1/Order.avsc", "--output", "json", "v3")
	require.Equal(t, 1, o.status)
	var verdicts []verdict
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &verdicts))
	require.Equal(t, []verdict{
		{File: "v3/Parcel.avsc", Subject: "shop.Parcel", Level: avsc.FullTransitive, Earlier: []string{}, OK: true, Problems: []avsc.Problem{}},
		{File: "v3/order.avsc", Subject: "shop.Order", Level: avsc.FullTransitive, Earlier: []string{"v1/Order.avsc"}, Problems: []avsc.Problem{{
			Direction: avsc.Backward, Earlier: "v1/Order.avsc", Path: "note", Reason: "it is new and has no default for messages that do not have it",
			Remedy: `give it one, such as "default": ""`,
		}}},
	}, verdicts)
}

func TestSchemaCheckAgainstAGitRevision(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{"schemas/order/Order.avsc": record("shop.Order", fieldID, fieldMust), "schemas/Gone.avsc": record("shop.Gone")})
	run := func(args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("init", "--quiet")
	run("add", ".")
	run("commit", "--quiet", "-m", "first")
	run("tag", "v1")
	require.NoError(t, os.Remove(filepath.Join(dir, "schemas/Gone.avsc")))
	put(t, dir, map[string]string{"schemas/order/Order.avsc": record("shop.Order", fieldID, fieldNote), "schemas/New.avsc": record("shop.New")})

	for _, paths := range [][]string{{"schemas"}, {"schemas/order/Order.avsc", "schemas/New.avsc"}} {
		o := schema(t, dir, nil, append([]string{"check", "--against", "git:v1"}, paths...)...)
		require.Equal(t, 1, o.status, o.stderr)
		require.Contains(t, o.stdout, "new   shop.New\n")
		require.Contains(t, o.stdout, "must: it was removed, and readers have no default for it\n        between: readers of v1, messages of the new version")
	}
	o := schema(t, filepath.Join(dir, "schemas/order"), nil, "check", "--against", "git:HEAD", "--level", "BACKWARD", "Order.avsc")
	require.Equal(t, outcome{0, "ok    shop.Order (BACKWARD)\n", ""}, o, "from a folder below")
	o = schema(t, dir, nil, "diff", "--against", "git:v1", "schemas")
	require.Equal(t, outcome{0, "shop.New: new\nshop.Order since v1\n  note: added, string, default \"\"\n  must: removed, was int, no default\n", ""}, o)

	for _, bad := range []string{"git:nowhere", "git:", "git:--output=x"} {
		o = schema(t, dir, nil, "check", "--against", bad, "schemas")
		require.Equal(t, 1, o.status, bad)
		require.Contains(t, o.stderr, "--against "+bad, bad)
	}
}

func TestSchemaRegisterIsIdempotentAndRefusesAsAWhole(t *testing.T) {
	t.Parallel()
	address := testkit.Registry(t)
	registry, err := registry.New(address)
	require.NoError(t, err)
	space := "t" + strings.ReplaceAll(uuid.NewString(), "-", "")
	order, parcel := space+".Order", space+".Parcel"
	t.Cleanup(func() { require.NoError(t, registry.DeleteSubjects(context.WithoutCancel(t.Context()), order, parcel)) })
	env := []string{"SCHEMA_REGISTRY_URL=" + address}
	versions := func(subject string) int {
		all, err := registry.Versions(t.Context(), subject)
		require.NoError(t, err)
		return len(all)
	}
	registered := func(o outcome) (all []registration) {
		t.Helper()
		require.Equal(t, 0, o.status, o.stderr)
		require.NoError(t, json.Unmarshal([]byte(o.stdout), &all))
		return all
	}

	dir := put(t, t.TempDir(), map[string]string{"Order.avsc": record(order, fieldID)})
	first := registered(schema(t, dir, env, "register", "--output", "json", "."))
	require.Len(t, first, 1)
	require.Positive(t, first[0].ID)
	require.Equal(t, registration{File: "Order.avsc", Subject: order, ID: first[0].ID, New: true}, first[0])
	o := schema(t, dir, nil, "register", "--registry", address, "Order.avsc")
	require.Equal(t, outcome{0, fmt.Sprintf("same  %s id %d\n", order, first[0].ID), ""}, o)
	require.Equal(t, 1, versions(order))

	// If one is incompatible, nothing is registered, not even the compatible ones.
	put(t, dir, map[string]string{"Order.avsc": record(order, fieldID, fieldMust), "Parcel.avsc": record(parcel, fieldID)})
	for level, why := range map[string]string{"BACKWARD": "must: it is new and has no default", "NONE": "the registry refuses it: "} {
		o = schema(t, dir, env, "register", "--level", level, ".")
		require.Equal(t, 1, o.status, level)
		require.Contains(t, o.stdout, "FAIL  "+order, level)
		require.Contains(t, o.stdout, why, level)
		require.NotContains(t, o.stdout, parcel, level)
		require.Contains(t, o.stderr, "nothing was registered: 1 of 2", level)
	}
	require.Equal(t, 1, versions(order))
	require.Zero(t, versions(parcel))

	put(t, dir, map[string]string{"Order.avsc": record(order, fieldID, fieldNote)})
	o = schema(t, dir, env, "check", ".")
	require.Equal(t, 0, o.status, o.stderr)
	require.Contains(t, o.stdout, "ok    "+order+" (BACKWARD)\n", "the registry's level")
	o = schema(t, dir, env, "diff", "Order.avsc")
	require.Equal(t, outcome{0, order + " since version 1\n  note: added, string, default \"\"\n", ""}, o)
	second := registered(schema(t, dir, env, "register", "--output", "json", "."))
	require.Len(t, second, 2)
	require.Equal(t, 2, versions(order))
	put(t, dir, map[string]string{"Order.avsc": record(order, fieldID)})
	require.Equal(t, first, func() []registration {
		again := registered(schema(t, dir, env, "register", "--output", "json", "Order.avsc"))
		again[0].New = true
		return again
	}(), "an old version keeps its id")
}

// Protobuf and JSON Schema are registered with their imports, compared by the registry, and described by this program.
func TestSchemasOfOtherFormats(t *testing.T) {
	t.Parallel()
	address := testkit.Registry(t)
	env := []string{"SCHEMA_REGISTRY_URL=" + address}
	prefix := strings.ReplaceAll(testkit.Flow(t), "-", "")
	proto := func(fields string) string {
		return "syntax = \"proto3\";\npackage " + prefix + ";\nimport \"" + prefix + "/money.proto\";\nmessage Charged { " + fields + " }\n"
	}
	folder := put(t, t.TempDir(), map[string]string{
		"order.proto":            proto("string id = 1; Money total = 2;"),
		prefix + "/money.proto":  "syntax = \"proto3\";\npackage " + prefix + ";\nmessage Money { int64 cents = 1; }\n",
		"refused.schema.json":    `{"title":"` + prefix + `.Refused","type":"object","properties":{"why":{"type":"string"}}}`,
		"not-a-schema.json":      `{"a":1}`,
		"google-not-loaded.text": "",
	})
	before := put(t, t.TempDir(), map[string]string{
		"order.proto": proto("string id = 1; int64 cents = 3;"), prefix + "/money.proto": "syntax = \"proto3\";\npackage " + prefix + ";\nmessage Money { int64 cents = 1; }\n",
	})
	first := schema(t, folder, env, "register", ".")
	require.Zero(t, first.status, first.stderr)
	for _, want := range []string{"new   " + prefix + ".Charged id ", "new   " + prefix + ".Money id ", "new   " + prefix + ".Refused id "} {
		require.Contains(t, first.stdout, want)
	}
	again := schema(t, folder, env, "register", ".")
	require.Zero(t, again.status, again.stderr)
	require.NotContains(t, again.stdout, "new ")
	require.Equal(t, strings.ReplaceAll(first.stdout, "new  ", "same "), again.stdout)
	checked := schema(t, folder, env, "check", ".")
	require.Zero(t, checked.status, checked.stderr)
	require.Contains(t, checked.stdout, "ok    "+prefix+".Charged")

	diff := schema(t, folder, nil, "diff", "--against", before, ".")
	require.Zero(t, diff.status, diff.stderr)
	require.Contains(t, diff.stdout, "  total: added, number 2, "+prefix+".Money")
	require.Contains(t, diff.stdout, "  cents: removed, was number 3, int64; its number is not reserved")
	require.Contains(t, diff.stdout, prefix+".Refused: new")
	refused := schema(t, folder, nil, "check", "--against", before, ".")
	require.Equal(t, 1, refused.status)
	require.Contains(t, refused.stderr, "is PROTOBUF, and only a registry compares its versions: give --registry")
}

func TestSchemaSaysWhatIsWrongWithItsInput(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{
		"good.avsc": record("shop.Order", fieldID), "twice.avsc": record("shop.Order"), "bad.avsc": "{", "text.avsc": `"string"`,
		"large.avsc": strings.Repeat(" ", maxSchema+1), "empty/README.md": "",
	})
	against := []string{"--against", "good.avsc"}
	for _, row := range []struct {
		args []string
		want string
	}{
		{append(against, "gone.avsc"), "gone.avsc: no such file"},
		{append(against, "empty"), "no .avsc, .proto, .schema.json file in empty"},
		{append(against, "bad.avsc"), "bad.avsc: "},
		{append(against, "text.avsc"), "text.avsc: the schema is of type string, want a record"},
		{append(against, "large.avsc"), "large.avsc: larger than 1048576 bytes"},
		{append(against, "good.avsc", "twice.avsc"), "twice.avsc: shop.Order is described in good.avsc already"},
		{[]string{"--against", "gone", "good.avsc"}, "--against gone: "},
		{[]string{"--against", "git:HEAD", "good.avsc"}, "--against git:HEAD: "},
		{[]string{"--registry", "http://127.0.0.1:1", "good.avsc"}, "registry http://127.0.0.1:1"},
	} {
		for _, verb := range []string{"check", "diff"} {
			o := schema(t, dir, nil, append([]string{verb}, row.args...)...)
			require.Equal(t, 1, o.status, "%s %v: %+v", verb, row.args, o)
			require.Contains(t, o.stderr, row.want)
			require.Empty(t, o.stdout)
		}
	}
	o := schema(t, dir, []string{"SCHEMA_REGISTRY_URL=http://me:s3cret@127.0.0.1:1"}, "register", "good.avsc")
	require.Equal(t, 1, o.status)
	require.NotContains(t, o.stderr, "s3cret")
}
