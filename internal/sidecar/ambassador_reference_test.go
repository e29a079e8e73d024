package sidecar

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/sagahttp"
)

const (
	ambassadorPage    = "../../docs/ambassador-reference.md"
	ambassadorExample = "testdata/ambassador.yaml"
)

const ambassadorHead = `# troupe ambassador, setting by setting

This page is made from the tables in internal/sidecar that the program itself reads. To rewrite it:
` + "`go test ./internal/sidecar -run Ambassador -update`" + `. What the program does is in [ambassador.md](ambassador.md).

A setting has one name: a flag, a key in the file of ` + "`--config`" + ` (YAML), and, in capitals, a variable. A flag wins over the
environment, that over the file. An unknown key is refused. ` + "`troupe ambassador schema`" + ` prints the file's JSON Schema.

Settings marked *secret* may also be read from a file: ` + "`NAME-file`" + `, or the variable with ` + "`_FILE`" + ` behind it. Those without a
flag (–) have only ` + "`--NAME-file`" + `: others can see a command line. Those marked *command* may also be the output of a command: set
` + "`NAME-command`" + `, or the variable with ` + "`_COMMAND`" + ` behind it. No secret is ever printed. [Identity](identity.md) lists when a new value
of each secret takes effect. SIGHUP reads ` + "`registry` and `alert-url`" + ` again; the other settings need a restart.

` + "```yaml" + `
%s` + "```" + `

## Commands

Only the file has them, under ` + "`commands`" + `; a command of another type is a dead letter.

| key | default | |
|---|---|---|
| ` + "`type`" + ` | | ce_type of the command; ` + "`troupe.Call`" + `: the ambassador makes [the HTTP request that a saga's step names](ambassador.md#the-steps-of-a-saga); no other key is allowed |
| ` + "`path`" + ` | ` + "`/`" + ` | where it is posted, behind ` + "`service-url`" + ` |
| ` + "`success`" + ` | the type with ` + "`Done`" + ` behind it | ce_type of the success event |
| ` + "`failure`" + ` | the type with ` + "`Refused`" + ` behind it | ce_type of the failure event |
| ` + "`next-topic`, `next-type`" + ` | none | a command that is written with the success event, with its body, for the hop whose turn it is |
`

func ambassadorReference(t *testing.T) string {
	t.Helper()
	example, err := os.ReadFile(ambassadorExample)
	require.NoError(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, ambassadorHead, example)
	for _, s := range ambassadorSections {
		fmt.Fprintf(&b, "\n## %s\n\n| setting | variable | default | | |\n|---|---|---|---|---|\n", s.title)
		for _, one := range settingsOfProgram(ambassadorProgram, s.settings...) {
			var marks []string
			for mark, has := range map[string]bool{"secret": one.secret, "command": one.printed, "–": one.hidden} {
				if has {
					marks = append(marks, mark)
				}
			}
			slices.Sort(marks)
			value := ""
			if one.value != "" {
				value = "`" + one.value + "`"
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", one.name, one.variable(), value, strings.Join(marks, ", "),
				strings.ReplaceAll(one.usage, "|", `\|`))
		}
	}
	return b.String()
}

func TestTheAmbassadorsReferenceIsWhatTheProgramKnows(t *testing.T) {
	page := ambassadorReference(t)
	if *rewrite {
		require.NoError(t, os.WriteFile(ambassadorPage, []byte(page), 0o644))
	}
	written, err := os.ReadFile(ambassadorPage)
	require.NoError(t, err)
	require.Equal(t, page, string(written), "go test ./internal/sidecar -run Ambassador -update")
	names := make(map[string]bool)
	for _, s := range ambassadorSettings {
		require.Equal(t, 2, strings.Count(s.usage, "`"), "%s: its usage names the value's kind", s.name)
		require.False(t, names[s.name], "%s is there twice", s.name)
		names[s.name] = true
	}
}

// plannedBeside returns the plan that the program makes of a file.
func plannedBeside(t *testing.T, text string, environ ...string) (*ambassadorPlan, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ambassador.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	p := Program{Environ: append(environ, configVar(ambassadorProgram)+"="+path), Parts: sagahttp.NewServer}
	cmd := &cobra.Command{}
	declare(cmd, ambassadorSettings...)
	return p.ambassadorPlan(cmd, zerolog.Nop())
}

func ambassadorCompiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var out bytes.Buffer
	p := Program{Args: []string{"schema"}, Stdout: &out, Stderr: &out, Environ: []string{}}
	require.Equal(t, exitDone, p.Ambassador(context.Background()))
	doc, err := jsonschema.UnmarshalJSON(&out)
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("ambassador.json", doc))
	s, err := c.Compile("ambassador.json")
	require.NoError(t, err)
	return s
}

func TestTheAmbassadorsDocumentedFileIsValidAndIsRead(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(ambassadorExample)
	require.NoError(t, err)
	require.NoError(t, ambassadorCompiled(t).Validate(fileOf(t, string(b))))
	dir := t.TempDir()
	for name, secret := range map[string]string{
		"database-password": "p", "service-token": "s", "signing-secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
		"chat-webhook": "https://chat.example/hooks/1", "outbox-token": "0123456789abcdef",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(secret+"\n"), 0o600))
	}
	got, err := plannedBeside(t, strings.ReplaceAll(string(b), "/run/secrets", dir))
	require.NoError(t, err)
	require.Equal(t, "p", got.database.ConnConfig.Password)
	require.Equal(t, "order.courier", got.participant.Hop.String())
	require.Equal(t, []any{4, 8, 10 * time.Second, -1},
		[]any{got.participant.Concurrency, got.participant.Batch, got.participant.Timeout, got.participant.Immediate})
	require.Equal(t, []string{"Bearer s"}, got.service.Header["Authorization"])
	require.NotNil(t, got.service.Sign)
	require.NotNil(t, got.registry)
	require.Equal(t, []ambassador.Route{
		{Type: "CollectParcel", Path: "/parcels", Success: "ParcelCollected", Failure: "ParcelRefused",
			Next: &ambassador.Next{Topic: "order.customer.commands", Type: "TellCustomer"}},
		{Type: "GiveParcelBack", Path: "/returns"},
	}, got.routes)
}

// The program refuses every file that the schema refuses, and every default is valid.
func TestTheAmbassadorsSchemaAndTheProgramAgree(t *testing.T) {
	t.Parallel()
	schema := ambassadorCompiled(t)
	const rest = "database-url: postgres://h/d\nbrokers: [a:1]\nhop: a.b\nservice-url: http://h\n"
	const good = rest + "commands: [{type: A}]\n"
	var all strings.Builder
	for _, s := range ambassadorSettings {
		if s.value != "" {
			fmt.Fprintf(&all, "%s: %v\n", s.name, s.defaultValue())
		}
	}
	for name, c := range map[string]struct {
		text, says string
	}{
		"the least":              {good, ""},
		"all defaults":           {good + all.String(), ""},
		"next":                   {rest + "commands: [{type: A, path: /a, next-topic: a.c.commands, next-type: B}]", ""},
		"no commands":            {rest, "commands is not set"},
		"only sagas":             {"database-url: postgres://h/d\nbrokers: [a:1]\nhop: a.b\nsagas: [../../examples/travel-booking/trip.saga.json]\n", ""},
		"an empty list":          {rest + "commands: []", "want a list of 1"},
		"an unknown key":         {good + "leese: 5s", `unknown key "leese"`},
		"an unknown key below":   {rest + "commands: [{type: A, url: b}]", `unknown key "url"`},
		"a command without type": {rest + "commands: [{path: /}]", "without a type"},
		"a path without a slash": {rest + "commands: [{type: A, path: a}]", "begins with a slash"},
		"half of next":           {rest + "commands: [{type: A, next-type: B}]", "set both or none"},
		"the steps of sagas":     {rest + "commands: [{type: troupe.Call}]", ""},
		"a path of these steps":  {rest + "commands: [{type: troupe.Call, path: /}]", "want the type only"},
		"a type that is 7":       {rest + "commands: [{type: 7}]", "want text"},
		"a mode that is none":    {good + "mode: structured", "want cloudevents or plain"},
		"too many requests":      {good + "concurrency: 1001", "from 1 to 1000"},
		"a secret that is 83":    {good + "signing-secret: 0123", "want text in quotes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			invalid := schema.Validate(fileOf(t, c.text))
			_, refused := plannedBeside(t, c.text)
			if c.says == "" {
				require.NoError(t, invalid)
				require.NoError(t, refused)
				return
			}
			require.Error(t, invalid)
			require.ErrorContains(t, refused, c.says)
		})
	}
}

// TestTheAmbassadorSaysWhatIsWrong checks that an error has the setting, its source and the remedy, and never a secret.
func TestTheAmbassadorSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const base = "database-url: postgres://h/d\nbrokers: [a:1]\ncommands: [{type: A}]\n"
	const good = base + "hop: a.b\nservice-url: http://h\n"
	for says, text := range map[string]string{
		"hop is not set: want the flow and the hop":           base,
		"set TROUPE_AMBASSADOR_SERVICE_URL, or --service-url": base + "hop: a.b\n",
		"hop (from":                                      base + "hop: A.b\nservice-url: http://h\n",
		"it has credentials":                             "",
		"signing-secret is not set":                      good + "signature: github\n",
		"is set, and signature is none":                  good + "signing-secret: 'hunter2hunter2hunter2hunter2'\n",
		"want 24 or more":                                good + "signature: github\nsigning-secret: hunter2\n",
		"an address of loopback":                         good + "outbox: 0.0.0.0:80\n",
		"outbox-token (from":                             good + "outbox: 0.0.0.0:80\noutbox-token: hunter2\n",
		"admin (from":                                    good + "admin: 0.0.0.0:80\n",
		"none.saga.json: no such file":                   good + "sagas: [none.saga.json]\n",
		"testdata/ambassador.yaml: line 1:":              good + "sagas: [testdata/ambassador.yaml]\n",
		"service-url is not set":                         base + "hop: a.b\nsagas: [../../examples/travel-booking/trip.saga.json]\n",
		"no less than retry-initial":                     good + "retry-initial: 2s\nretry-cap: 1s\n",
		"two are of type":                                strings.Replace(good, "[{type: A}]", "[{type: A}, {type: A}]", 1),
		"service-tls-cert and service-tls-key: set both": good + "service-tls-cert: /a\n",
	} {
		if text == "" {
			says, text = "the base URL has credentials", base+"hop: a.b\nservice-url: http://bank:hunter2@h\n"
		}
		_, err := plannedBeside(t, text)
		require.ErrorContains(t, err, says)
		require.ErrorAs(t, err, new(usageError))
		require.NotContains(t, err.Error(), "hunter2")
	}
}
