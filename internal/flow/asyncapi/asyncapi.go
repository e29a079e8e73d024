// Package asyncapi writes a service's declaration as an AsyncAPI 3 document (asyncapi.com), for catalogues and for generators
// of other languages. Its channels are topics, its operations the messages that the service receives and sends, with the
// headers of Troupe's messages. Payloads are not described: their schemas are in the schema registry.
package asyncapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/ce"
)

// Version is the version of AsyncAPI that the documents follow.
const Version = "3.0.0"

type document struct {
	AsyncAPI           string               `json:"asyncapi"`
	Info               info                 `json:"info"`
	DefaultContentType string               `json:"defaultContentType"`
	Channels           map[string]channel   `json:"channels"`
	Operations         map[string]operation `json:"operations"`
	Components         components           `json:"components"`
}

type info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

type channel struct {
	Address  string         `json:"address"`
	Messages map[string]ref `json:"messages"`
	Bindings bindings       `json:"bindings"`
}

type bindings struct {
	Kafka map[string]any `json:"kafka"`
}

type operation struct {
	Action   string `json:"action"`
	Channel  ref    `json:"channel"`
	Summary  string `json:"summary"`
	Messages []ref  `json:"messages"`
}

type components struct {
	Messages      map[string]message        `json:"messages"`
	MessageTraits map[string]map[string]any `json:"messageTraits"`
}

type message struct {
	Name     string         `json:"name"`
	Title    string         `json:"title"`
	Headers  map[string]any `json:"headers"`
	Traits   []ref          `json:"traits"`
	Bindings bindings       `json:"bindings"`
}

type ref struct {
	Ref string `json:"$ref"`
}

// Document returns the AsyncAPI document of a service, as JSON. version is the version of the service's contract, which its
// owners assign; "" means 1.0.0. The error is the one of the service's Check.
func Document(s flow.Declaration, version string) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	d := writing{document: document{
		AsyncAPI: Version, DefaultContentType: "application/json",
		Info: info{
			Title: s.Hop, Version: cmp.Or(version, "1.0.0"),
			Description: "What " + s.Hop + " receives and sends. Delivery is at least once, in order of the key; ce_id tells repetitions apart.",
		},
		Channels: make(map[string]channel), Operations: make(map[string]operation),
		Components: components{Messages: make(map[string]message), MessageTraits: map[string]map[string]any{"envelope": envelopeTrait()}},
	}, ids: make(map[string]string)}
	d.write(s)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(d.document); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writing is a document that is being written.
type writing struct {
	document
	ids map[string]string // the type of each message id
}

func (d *writing) write(s flow.Declaration) {
	for _, m := range s.Starts {
		d.operation("send", m, "Begins a flow, or comes into one of its key.")
	}
	for _, r := range s.Reactions {
		d.operation("receive", r.On, whatComesOf(r))
		for _, m := range r.Success {
			d.operation("send", m, "Sent when "+r.On.Type+" has been handled.")
		}
		for _, m := range r.Failure {
			d.operation("send", m, "Sent when "+r.On.Type+" is refused, or given up.")
		}
	}
	for _, j := range s.Joins {
		for _, m := range j.Await {
			d.operation("receive", m, fmt.Sprintf("Is one of the %d parts of join %s.", len(j.Await), j.Name))
		}
		for _, m := range j.Broken {
			d.operation("receive", m, "Ends join "+j.Name+": a part of it will not come.")
		}
		for _, m := range j.Success {
			d.operation("send", m, "Sent when join "+j.Name+" is complete.")
		}
		for _, m := range j.Expired {
			d.operation("send", m, "Sent when join "+j.Name+" is not complete within "+j.Within+".")
		}
	}
	for _, e := range s.Expectations {
		d.operation("receive", e.After, "Begins the time of "+e.Name+".")
		for _, m := range e.Expect {
			d.operation("receive", m, "Meets "+e.Name+".")
		}
		d.operation("send", e.Raise, "Sent when "+e.Name+" is not met within "+e.Within+".")
		for _, m := range e.Late {
			d.operation("send", m, "Sent when "+e.Name+" is met after that.")
		}
	}
}

// whatComesOf describes the messages that a reaction sends.
func whatComesOf(r flow.Reaction) string {
	types := func(ms []flow.Message) string {
		var all []string
		for _, m := range ms {
			all = append(all, m.Type)
		}
		return strings.Join(all, ", ")
	}
	var all []string
	if len(r.Undoes) > 0 {
		all = append(all, "Undoes "+strings.Join(r.Undoes, ", ")+".")
	}
	if len(r.Success) > 0 {
		all = append(all, "Then "+types(r.Success)+" is sent.")
	}
	if len(r.Failure) > 0 {
		all = append(all, "When it fails "+types(r.Failure)+" is sent.")
	}
	return cmp.Or(strings.Join(all, " "), "Nothing is sent.")
}

// operation adds an operation, or adds the summary to an existing one.
func (d *writing) operation(action string, m flow.Message, summary string) {
	id := d.id(m)
	on, known := d.Channels[m.Topic]
	if !known {
		on = channel{
			Address: m.Topic, Messages: make(map[string]ref), Bindings: bindings{map[string]any{"topic": m.Topic, "bindingVersion": "0.5.0"}},
		}
		d.Channels[m.Topic] = on
	}
	on.Messages[id] = ref{"#/components/messages/" + id}
	d.Components.Messages[id] = message{
		Name: m.Type, Title: m.Type,
		Headers: map[string]any{
			"type": "object", "properties": map[string]any{ce.HeaderType: map[string]any{"const": m.Type}},
		},
		Traits: []ref{{"#/components/messageTraits/envelope"}},
		Bindings: bindings{map[string]any{
			"key": map[string]any{"type": "string", "description": "the business key, the same for all messages of a flow"}, "bindingVersion": "0.5.0",
		}},
	}
	name := action + "." + m.Topic + "." + id
	op, known := d.Operations[name]
	if !known {
		op = operation{
			Action: action, Channel: ref{"#/channels/" + m.Topic}, Messages: []ref{{"#/channels/" + m.Topic + "/messages/" + id}},
		}
	}
	if !strings.Contains(op.Summary, summary) {
		op.Summary = strings.TrimSpace(op.Summary + " " + summary)
	}
	d.Operations[name] = op
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// id returns a message's type in the characters that a name in the document may have, with a number if another type would
// have the same id.
func (d *writing) id(m flow.Message) string {
	base := unfit.ReplaceAllString(m.Type, "_")
	for id, n := base, 2; ; id, n = fmt.Sprintf("%s-%d", base, n), n+1 {
		if typ, taken := d.ids[id]; !taken || typ == m.Type {
			d.ids[id] = m.Type
			return id
		}
	}
}

// headers describes the headers of messages; package envelope documents them. required lists the headers that every message
// has.
var (
	headers = map[string]string{
		ce.HeaderSpecVersion:   "the version of CloudEvents, 1.0",
		ce.HeaderID:            "the message's id; a repetition has the same",
		ce.HeaderSource:        "the hop that sent it",
		ce.HeaderType:          "the message's type",
		ce.HeaderTime:          "when it was written",
		ce.HeaderContentType:   "how the payload is written",
		ce.HeaderCorrelationID: "the same for all messages of a flow",
		ce.HeaderCausationID:   "the id of the message that led to this one",
		ce.HeaderOutcome:       "the outcome of an event: success, failure or exhausted",
		ce.HeaderTraceParent:   "W3C trace context",
	}
	required = []string{ce.HeaderSpecVersion, ce.HeaderID, ce.HeaderSource, ce.HeaderType}
)

// envelopeTrait returns the parts that all messages have: CloudEvents in headers.
func envelopeTrait() map[string]any {
	properties := make(map[string]any)
	for name, says := range headers {
		properties[name] = map[string]any{"type": "string", "description": says}
	}
	return map[string]any{
		"headers": map[string]any{
			"type": "object", "required": slices.Sorted(slices.Values(required)), "properties": properties,
		},
		"correlationId": map[string]any{
			"description": "the same for all messages of a flow", "location": "$message.header#/" + ce.HeaderCorrelationID,
		},
	}
}
