package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/metrics/catalogue"
)

var rewrite = flag.Bool("update", false, "rewrite docs/relay-reference.md, the relays' section of docs/metrics-reference.md, and the Helm chart's schema")

const (
	referenceFile = "../../docs/relay-reference.md"
	exampleFile   = "testdata/relay.yaml"
)

const referenceHead = `# outbox-relay, setting by setting

This page is generated from the tables of settings in internal/sidecar. To rewrite it:
` + "`go test ./internal/sidecar -run Reference -update`" + `.

A setting has one name: a flag of ` + "`outbox-relay run`" + `, a key in the file of ` + "`--config`" + ` (YAML), and, in capitals, a variable.
Flags override the environment, and the environment overrides the file. ` + "`DATABASE_URL` and `KAFKA_BROKERS`" + ` alone are enough. An unknown
key is refused. ` + "`outbox-relay schema`" + ` prints the file's JSON Schema.

` + "```yaml" + `
%s` + "```" + `

## Several outboxes

` + "`outboxes`" + ` names several outboxes for one process, each with a relay of its own. An entry may have every setting marked
*each* below; other settings come from the rest of the file, from flags and from the environment. A setting of
one outbox overrides the setting of all: first ` + "`OUTBOX_RELAY_<NAME>__<SETTING>`" + ` (two underscores, such as
` + "`OUTBOX_RELAY_LEDGER__DATABASE_URL_FILE`" + `), then the entry. One that fails is tried again, at first after a second, at
most after a minute, and the others go on; ` + "`/readyz`" + ` says which one it is. Two outboxes of one table of one database are refused, and
so are two with one slot name and ` + "`exactly-once`" + ` for the same brokers, since the slot's name is their transactional id. Commands that work on one database take ` + "`--outbox NAME`" + `.

## A table of another shape

An entry's ` + "`mapping`" + ` has ` + "`table`" + `, as schema.table, and the options of Debezium's EventRouter, each a key with a dot in it:
the tables of one process may have different shapes. Such a table is read from the log (` + "`source`" + ` auto or wal; poll is refused, since it
deletes published rows) and never written to. Its database must be migrated, too, since the relay keeps its state and
failed rows there. [from-debezium.md](from-debezium.md) describes each option.

| option | default | one of |
|---|---|---|
%s
## Secrets

Settings marked *secret* may also be read from a file: ` + "`NAME-file`" + `, or the variable with ` + "`_FILE`" + ` behind it. The end of the
last line does not count. Setting both in one place is an error. A secret in the YAML itself must be text in quotes. None is
ever printed, in no log and no error. Those without a flag (–) have only ` + "`--NAME-file`" + `: others can see a command line.

Settings marked *command* may also be the output of a command: set ` + "`NAME-command`" + `, or the variable with ` + "`_COMMAND`" + ` behind it, such as
` + "`database-password-command: aws rds generate-db-auth-token …`" + `. The command is split at blanks, with quotes, and not run by a shell.
[Identity](identity.md) lists the commands of each provider, and when a new value of each secret takes effect.

## Reload

SIGHUP reads the file and the secrets again. If there is a mistake, it is logged and nothing changes. If a setting marked *each*
changed, the relay of that outbox drains and is restarted, and no other one waits for that; outboxes may be added and removed. Settings marked *live* change at once.
The others need a restart of the process, and the log names them. A paused relay stays paused. A replay ends if its relay is
restarted. Flags and the environment keep their values from the start. Certificates, keys, passwords and tokens for the database and for Kafka are
read for each new connection, without a signal.
`

const adminText = `
## Admin endpoints

At ` + "`admin`" + `, plain HTTP; put TLS before it where it leaves the machine. Without ` + "`admin-token`" + ` it listens on loopback only,
and there are no actions. With it, everything but ` + "`/livez` and `/readyz`" + ` wants ` + "`Authorization: Bearer TOKEN`" + `, and these two give
no reasons without it. ` + "`?outbox=NAME`" + ` chooses one, and at ` + "`/readyz`" + ` wants the token, too; where there are
several, those marked † want it.

| request | |
|---|---|
| ` + "`GET /livez`" + ` | 200: the process answers |
| ` + "`GET /readyz`" + ` | 200: every outbox makes progress or is a standby; else 503, with the outbox that does not, and the reason |
| ` + "`GET /status`" + ` | the state of each relay and its waiting rows, as JSON |
| ` + "`GET /metrics`" + ` | Prometheus, see below |
| ` + "`GET /parked`" + ` † | parked rows without payloads: ` + "`?topic=`, `?limit=` (50), `?after=`" + ` the page's ` + "`next`" + `; one request at a time; one that waits for 10 s gets 503 |
| ` + "`POST /pause`, `POST /resume`" + ` | rows in flight are finished, then nothing more is read; the lease is kept, so no standby takes over. Only this process: it publishes after a restart |
| ` + "`POST /parked/{id}/retry`" + ` † | body ` + "`" + `{"actor": "ann", "reason": "…"}` + "`" + `: tried again at once, in its old place. If rows of several topics are parked under the id: ` + "`?topic=`" + ` chooses one |
| ` + "`POST /parked/{id}/discard`" + ` † | the same body, with a reason: never published; ` + "`troupe.outbox_repairs`" + ` keeps the row. If rows of several topics are parked under the id: ` + "`?topic=`" + ` |
| ` + "`POST /replay`" + ` † | see below |
| ` + "`GET /replay`, `DELETE /replay`" + ` † | its progress; ends it |

A replay publishes rows again, under their ids, that were published and are still in the table:

` + "```json" + `
{"from_position": 1, "to_position": 0, "since": "2026-01-31T12:00:00Z", "until": "2026-01-31T13:00:00Z",
 "topic": "only.rows.of.this.commands", "into_topic": "another.topic", "rows_per_second": 100}
` + "```" + `

` + "`from_position` or `since`" + ` is needed, the rest is not. It has a producer of its own and is **outside of the relay's order**:
a consumer sees old messages after new ones, and participants that have handled an id do nothing again. Rows that are not
published yet, and failed rows, are left out. Under poll a row is deleted once it is published, and cannot be replayed;
the answer says so. One runs at a time per outbox.
`

const metricsText = `
## Metrics

All have the label ` + "`outbox`" + `: the entry's name, or the service where there are no entries. Those from the table (lag,
retrying, parked, headroom) are missing while the database does not answer.

| name | kind | unit | | a bad value |
|---|---|---|---|---|
`

// mappingRows returns the rows of the table of a mapping's options.
func mappingRows() string {
	var b strings.Builder
	for _, o := range mapping.Options() {
		words := strings.Join(o.Words, ", ")
		if o.Bool {
			words = "true, false"
		}
		value := ""
		if o.Default != "" {
			value = "`" + o.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", o.Name, value, words)
	}
	return b.String()
}

// reference returns the page.
func reference(t *testing.T) string {
	t.Helper()
	example, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, referenceHead, example, mappingRows())
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n| setting | variable | default | | |\n|---|---|---|---|---|\n", s.title)
		for _, one := range s.settings {
			var marks []string
			for mark, has := range map[string]bool{"each": one.each, "live": one.live, "secret": one.secret, "command": one.printed, "–": one.hidden} {
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
	b.WriteString(adminText)
	b.WriteString(metricsText)
	for _, f := range figures {
		kind := "gauge"
		if f.kind == prometheus.CounterValue {
			kind = "counter"
		}
		fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s | %s |\n", metricPrefix, f.name, kind, f.unit, f.help, f.bad)
	}
	fmt.Fprintf(&b, "| `%s%s` | histogram | s | %s | %s |\n", metricPrefix, latencyName, latencyHelp, latencyBad)
	return b.String()
}

func TestTheReferenceIsWhatTheProgramKnows(t *testing.T) {
	page := reference(t)
	if *rewrite {
		require.NoError(t, os.WriteFile(referenceFile, []byte(page), 0o644))
	}
	written, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	require.Equal(t, page, string(written), "go test ./internal/sidecar -run Reference -update")
}

func TestTheMetricsReferenceIsWhatTheProgramServes(t *testing.T) {
	section := catalogue.Section{Title: "Relays", Page: "../../docs/metrics-reference.md"}
	row := func(name, kind, unit, meaning string) {
		section.Metrics = append(section.Metrics, catalogue.Metric{
			Name: metricPrefix + name, Type: kind, Unit: unit, Meaning: meaning, Labels: []string{outboxLabel},
		})
	}
	for _, f := range figures {
		kind := "gauge"
		if f.kind == prometheus.CounterValue {
			kind = "counter"
		}
		row(f.name, kind, f.unit, f.help)
	}
	row(latencyName, "histogram", "s", latencyHelp)
	section.Hold(t, *rewrite, "go test ./internal/sidecar -run Reference -update")
}

func TestTheReferenceIsWithoutGaps(t *testing.T) {
	for _, s := range everything {
		require.Equal(t, 2, strings.Count(s.usage, "`"), "%s: its usage names the value's kind", s.name)
		if s.hidden {
			require.True(t, s.secret, s.name)
		}
		require.False(t, s.each && s.live, s.name)
	}
	for _, f := range figures {
		require.NotEmpty(t, f.unit, f.name)
		require.NotEmpty(t, f.help, f.name)
		require.Equal(t, f.kind == prometheus.CounterValue, strings.HasSuffix(f.name, "_total"), f.name)
		require.False(t, f.bad == "" && f.name != "alerts_total", f.name)
	}
}

// TestTheChartsSchemaHasTheReferencesSettings compares the part of the Helm chart's schema that checks the relay's file, and the list
// of settings that may not be there, since they are secrets. docker/kubernetestest tries the schema.
func TestTheChartsSchemaHasTheReferencesSettings(t *testing.T) {
	t.Parallel()
	const file = "../../docker/helm/outbox-relay/values.schema.json"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var chart object
	require.NoError(t, json.Unmarshal(text, &chart))
	defs := chart["$defs"].(object)
	defs["relay"] = fileSchema()
	forbidden := object{"database-url": object{"not": object{"pattern": "://[^/?]*:[^/?]*@|[?& ]password="}}}
	for _, s := range everything {
		if s.secret && s.name != databaseURL.name {
			forbidden[s.name] = false
		}
	}
	defs["withoutSecrets"] = object{"properties": forbidden}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(chart))
	if *rewrite {
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
		return
	}
	require.Equal(t, b.String(), string(text), "go test ./internal/sidecar -run Reference -update")
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var out bytes.Buffer
	p := Program{Args: []string{"schema"}, Stdout: &out, Stderr: &out, Environ: []string{}}
	require.Equal(t, exitDone, p.Main(context.Background()))
	doc, err := jsonschema.UnmarshalJSON(&out)
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("relay.json", doc))
	s, err := c.Compile("relay.json")
	require.NoError(t, err)
	return s
}

// fileOf returns a file in the types of JSON.
func fileOf(t *testing.T, text string) any {
	t.Helper()
	var m map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &m))
	b, err := json.Marshal(m)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err)
	return doc
}

// planned returns the plan that the program makes of a file.
func planned(t *testing.T, text string, environ ...string) (plan, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	p := Program{Environ: append(environ, configVar(relayProgram)+"="+path)}
	cmd := &cobra.Command{}
	declare(cmd, everything...)
	return p.plan(cmd, zerolog.Nop())
}

func TestTheDocumentedFileIsValidAndIsRead(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	require.NoError(t, compiled(t).Validate(fileOf(t, string(b))))

	dir := t.TempDir()
	ca := newAuthority(t)
	ca.write(t, dir)
	ca.issue(t, dir, "ledger", "relay")
	for name, secret := range map[string]string{
		"kafka-password": "k", "payment-password": "p", "chat-webhook": "https://chat.example/hooks/1", "admin-token": "0123456789abcdef",
		"registry-url": "https://relay:r@registry.bank.example",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(secret+"\n"), 0o600))
	}
	got, err := planned(t, strings.NewReplacer("/etc/relay", dir, "/run/secrets", dir).Replace(string(b)))
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", got.token)
	require.Len(t, got.outboxes, 3)
	payment, ledger, orders := got.outboxes[0], got.outboxes[1], got.outboxes[2]
	require.Nil(t, payment.relay.Mapping)
	require.Equal(t, "public.outbox", orders.relay.Table)
	require.Equal(t, "type:header:eventType,tenant:header", orders.table.Mapping.Config().Additional)
	require.NotNil(t, orders.relay.Avro)
	require.Equal(t, "p", payment.database.ConnConfig.Password)
	require.Equal(t, "payment-db.bank.example", payment.database.ConnConfig.TLSConfig.ServerName)
	require.Empty(t, payment.database.ConnConfig.Fallbacks, "there is no way without TLS")
	require.NotNil(t, ledger.database.ConnConfig.TLSConfig.GetClientCertificate)
	require.Equal(t, []any{2000, 5000, "payment", "general-ledger", 12},
		[]any{payment.relay.Batch, ledger.relay.Batch, payment.relay.Service, ledger.relay.Service, ledger.relay.Retry.Attempts})
	require.Len(t, payment.relay.Brokers, 2)
	require.Len(t, payment.relay.Kafka, 3, "TLS, SASL and compression")
}

// The program refuses every file that the schema refuses, and every default is valid.
func TestTheSchemaAndTheProgramAgree(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	const good = "database-url: postgres://h/d\nbrokers: [a:1]\n"
	var all strings.Builder
	for _, s := range everything {
		if s.value != "" && s.name != output.name {
			fmt.Fprintf(&all, "%s: %v\n", s.name, s.defaultValue())
		}
	}
	for name, c := range map[string]struct {
		text string
		good bool
	}{
		"the least":              {good, true},
		"all defaults":           {good + all.String(), true},
		"brokers as text":        {"database-url: postgres://h/d\nbrokers: a:1,b:2\n", true},
		"an outbox":              {good + "outboxes: [{name: a-1}]", true},
		"an unknown key":         {good + "leese: 5s", false},
		"a level that is none":   {good + "log-level: loud", false},
		"no number":              {good + "batch: many", false},
		"too large a number":     {good + "batch: 10001", false},
		"no time":                {good + "lease: soon", false},
		"a time without unit":    {good + "lease: 5", false},
		"a password that is 83":  {good + "database-password: 0123", false},
		"settings below one":     {good + "admin: {host: a}", false},
		"no outboxes":            {good + "outboxes: []", false},
		"an outbox without name": {good + "outboxes: [{batch: 1}]", false},
		"a name with a space":    {good + "outboxes: [{name: a b}]", false},
		"a name with two dashes": {good + "outboxes: [{name: a--b}]", false},
		"a process's setting":    {good + "outboxes: [{name: a, admin: 'a:1'}]", false},
		"an entry that is text":  {good + "outboxes: [a]", false},

		"a mapping":                   {good + "outboxes: [{name: a, mapping: {table: s.t, table.expand.json.payload: true}}]", true},
		"a mapping with an avro list": {good + "outboxes: [{name: a, registry: 'http://r', avro-topics: [a.*, b], mapping: {table: s.t}}]", true},
		"a mapping without a table":   {good + "outboxes: [{name: a, mapping: {headers: eventrouter}}]", false},
		"a table without a schema":    {good + "outboxes: [{name: a, mapping: {table: t}}]", false},
		"an option that is none":      {good + "outboxes: [{name: a, mapping: {table: s.t, route.by: x}}]", false},
		"another word":                {good + "outboxes: [{name: a, mapping: {table: s.t, headers: plain}}]", false},
		"a mapping for all":           {good + "mapping: {table: s.t}", false},
		"no strategy":                 {good + "outboxes: [{name: a, registry: 'http://r', subject-strategy: topic}]", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			invalid := schema.Validate(fileOf(t, c.text))
			_, refused := planned(t, c.text)
			if c.good {
				require.NoError(t, invalid)
				require.NoError(t, refused)
				return
			}
			require.Error(t, invalid)
			require.Error(t, refused)
		})
	}
}

func TestASettingOfOneOutboxOverridesTheSettingOfAll(t *testing.T) {
	t.Parallel()
	const file = "database-url: postgres://h/d\nbrokers: [a:1]\nbatch: 2\noutboxes: [{name: a-b, batch: 5}, {name: c, database-url: 'postgres://h/c'}, {name: d, database-url: 'postgres://h/e'}]\n"
	got, err := planned(t, file, "OUTBOX_RELAY_BATCH=3", "OUTBOX_RELAY_A_B__BATCH=6", "OUTBOX_RELAY_C__BATCH=4", "OUTBOX_RELAY_E__BATCH=9")
	require.NoError(t, err)
	var batches []int
	for _, o := range got.outboxes {
		batches = append(batches, o.relay.Batch)
	}
	require.Equal(t, []int{6, 4, 3}, batches)
	got, err = planned(t, file, "OUTBOX_RELAY_BATCH=3")
	require.NoError(t, err)
	require.Equal(t, 5, got.outboxes[0].relay.Batch, "the entry wins over a variable for all")
}
