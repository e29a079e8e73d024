package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
)

const examples = "../../internal/saga/verify/testdata/"

func TestSagaVerifyPrintsFileLineSeverityAndRule(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "saga", "verify", examples+"no-way-back.bad.saga.json"))
	require.Equal(t, 1, o.status, o.stderr)
	require.Empty(t, o.stderr)
	first, rest, _ := strings.Cut(o.stdout, "\n")
	require.Equal(t, examples+"no-way-back.bad.saga.json:18: error: no-way-back: steps[1]: inventory stays done when shipping fails; "+
		"give it a compensation, or say in irreversible why it needs none", first)
	require.Equal(t, "\tpayment: done\n\tinventory: done\n\tshipping: fails\n", rest)
}

func TestSagaVerifySaysNothingOfAGoodDefinitionAndWarningsAreNoErrors(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "saga", "verify", examples+"no-way-back.good.saga.json"))
	require.Equal(t, outcome{}, o)
	o = finish(t, command(t, nil, "saga", "verify", examples+"no-timeout.bad.saga.json"))
	require.Equal(t, 0, o.status)
	require.Contains(t, o.stdout, ": warning: no-timeout: ")
}

func TestSagaVerifyOfWhatIsNoDefinition(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{"broken.json": "{\n  \"saga\": 7\n}\n", "large.json": strings.Repeat(" ", 2<<20)})
	o := finish(t, command(t, nil, "saga", "verify", filepath.Join(dir, "broken.json"), filepath.Join(dir, "large.json")))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stdout, "broken.json:2: error: definition: saga: ")
	require.Contains(t, o.stdout, "large.json:1: error: definition: ")
	require.Contains(t, o.stdout, "at most 1048576")
	o = finish(t, command(t, nil, "saga", "verify", "--output", "mermaid", filepath.Join(dir, "broken.json")))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stderr, "cannot be drawn")
}

func TestSagaVerifyWithKnownHopsAndSeveralFiles(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "saga", "verify", "--output", "json", "--hops", examples+"no-consumer.hops.json",
		examples+"no-consumer.bad.saga.json", examples+"no-consumer.good.saga.json"))
	require.Equal(t, 1, o.status)
	var reports []verify.Report
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &reports))
	require.Len(t, reports, 2)
	require.Equal(t, "no-consumer", reports[0].Findings[0].Rule)
	require.Len(t, reports[1].Findings, 1) // the same name and version as the first
	require.Equal(t, "same-version", reports[1].Findings[0].Rule)
	require.Positive(t, reports[1].Findings[0].Line)

	dir := put(t, t.TempDir(), map[string]string{"hops.json": `{"payment": {"handles": []}}`})
	o = finish(t, command(t, nil, "saga", "verify", "--hops", filepath.Join(dir, "hops.json"), examples+"no-timeout.bad.saga.json"))
	require.Equal(t, 2, o.status)
	require.Contains(t, o.stderr, "--hops")
}

func TestSagaVerifyAsSARIFAndMermaid(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "saga", "verify", "--output", "sarif", examples+"no-way-back.bad.saga.json"))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stdout, `"version": "2.1.0"`)
	require.Contains(t, o.stdout, `"startLine": 18`)
	o = finish(t, command(t, nil, "saga", "verify", "--output", "mermaid", examples+"no-way-back.bad.saga.json"))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stdout, "flowchart TD\n")
}

// TestSagaVerifyReadsPersonalFieldsOfSchemas of each format, and refuses personal fields without a subject.
func TestSagaVerifyReadsPersonalFieldsOfSchemas(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{
		"avro/Booked.avsc": `{"type": "record", "name": "Booked", "fields": [{"name": "id", "type": "string", "personal": "subject"},
			{"name": "email", "type": "string", "personal": "email"}]}`,
		"json/booked.schema.json": `{"title": "Booked", "type": "object", "required": ["id", "email"], "properties": {"id": {"type": "string", "personal": "subject"},
			"email": {"type": "string", "personal": "email"}}}`,
		"proto/booked.proto": `syntax = "proto3";
			import "troupe/personal.proto";
			message Booked { string id = 1 [(troupe.personal) = "subject"]; string email = 2 [(troupe.personal) = "email"]; }`,
		"wrong/Booked.avsc": `{"type": "record", "name": "Booked", "fields": [{"name": "email", "type": "string", "personal": "email"}]}`,
	})
	for _, format := range []string{"avro", "json", "proto"} {
		o := finish(t, command(t, nil, "saga", "verify", "--schemas", filepath.Join(dir, format), examples+"personal-field.bad.saga.json"))
		require.Equal(t, 1, o.status, "%s: %s", format, o.stderr)
		require.Equal(t, examples+"personal-field.bad.saga.json:10: error: personal-field: steps[0].when: data.email is personal (email), and a saga sees its encrypted text: "+
			"copy it, compare it with '', or let a service that can decrypt it decide\n", o.stdout, format)
	}
	o := finish(t, command(t, nil, "saga", "verify", "--schemas", filepath.Join(dir, "avro"), examples+"personal-field.good.saga.json"))
	require.Equal(t, outcome{}, o)
	o = finish(t, command(t, nil, "saga", "verify", "--schemas", filepath.Join(dir, "wrong"), examples+"personal-field.good.saga.json"))
	require.Equal(t, 2, o.status)
	require.Contains(t, o.stderr, "--schemas: ")
	require.Contains(t, o.stderr, "email is personal, and no field is the subject")
}

// TestSagaVerifyFindsATypoInAnEventsField in each format of schemas, and says which events it has no schema of.
func TestSagaVerifyFindsATypoInAnEventsField(t *testing.T) {
	t.Parallel()
	definition := func(id, reason string) string {
		return `{
"saga": "trip", "version": 1, "key": "trip", "data": {"trip": "string", "room": "string", "nights": "int"},
"steps": [{"name": "hotel", "timeout": "10m", "retriable": true, "irreversible": "it is a test",
  "command": {"hop": "hotel", "type": "Book", "input": {
    "` + id + `": "data.trip"}},
  "success": [{"event": "Booked", "set": {
    "room": "event.` + reason + `", "nights": "event.nights"}}]}]
}`
	}
	dir := put(t, t.TempDir(), map[string]string{
		"typo.json": definition("tripp", "address.rooom"), "type.json": definition("trip", "nights"), "good.json": definition("trip", "address != null ? event.address.room : ''"), "null.json": definition("trip", "address.room"),
		"avro/Booked.avsc": `{"type": "record", "name": "Booked", "fields": [{"name": "nights", "type": "int"}, {"name": "address", "type": ["null",
			{"type": "record", "name": "Address", "fields": [{"name": "room", "type": "string"}]}], "default": null}]}`,
		"avro/Book.avsc": `{"type": "record", "name": "Book", "fields": [{"name": "trip", "type": "string"}]}`,
		"json/booked.schema.json": `{"title": "Booked", "type": "object", "required": ["nights", "address"], "properties": {"nights": {"type": "integer"},
			"address": {"type": ["object", "null"], "required": ["room"], "properties": {"room": {"type": "string"}}}}}`,
		"json/book.schema.json": `{"title": "Book", "type": "object", "properties": {"trip": {"type": "string"}}, "required": ["trip"]}`,
		"proto/booked.proto": `syntax = "proto3";
			message Address { string room = 1; }
			message Booked { int32 nights = 1; Address address = 2; }
			message Book { string trip = 1; }`,
	})
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, format := range []string{"avro", "json", "proto"} {
		o := finish(t, command(t, nil, "saga", "verify", "--schemas", file(format), file("typo.json")))
		require.Equal(t, 1, o.status, "%s: %s", format, o.stderr)
		require.Empty(t, o.stderr)
		require.Contains(t, o.stdout, file("typo.json")+":5: error: message-field: steps[0].command.input.tripp: the schema of Book has no field tripp, but trip; "+
			"correct the name, or add the field to the schema\n", format)
		require.Contains(t, o.stdout, file("typo.json")+":7: error: message-field: steps[0].success[0].set.room: the schema of address of Booked has no field rooom, but room; "+
			"correct the name, or add the field to the schema\n", format)
		o = finish(t, command(t, nil, "saga", "verify", "--schemas", file(format), file("type.json")))
		require.Equal(t, outcome{status: 1, stdout: file("type.json") + `:7: error: message-field: steps[0].success[0].set.room: "event.nights" is of type int, ` +
			"by the schema of Booked, want string; correct the expression, or the schema\n"}, o, format)
		require.Equal(t, outcome{}, finish(t, command(t, nil, "saga", "verify", "--schemas", file(format), file("good.json"))), format)
		o = finish(t, command(t, nil, "saga", "verify", "--schemas", file(format), file("null.json")))
		require.Equal(t, outcome{stdout: file("null.json") + ":7: warning: message-null: steps[0].success[0].set.room: event.address of Booked may be null, " +
			"and then the saga is parked: say event.address != null ? … : …\n"}, o, format)
	}
	o := finish(t, command(t, nil, "saga", "verify", file("typo.json")))
	require.Equal(t, outcome{stderr: file("typo.json") + ": note: the fields of Booked were not checked: give the schemas of these events with --schemas\n"}, o)
	o = finish(t, command(t, nil, "saga", "verify", "--output", "json", file("typo.json")))
	require.Contains(t, o.stdout, `"unchecked":["Booked"]`)
}
