package sidecar

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/topics"
)

// An ambassadorPlan holds the validated configuration of troupe ambassador.
type ambassadorPlan struct {
	database    *pgxpool.Config
	migrate     bool
	registry    *schemas.Registry // nil: none
	participant participant.Config
	service     ambassador.Config
	routes      []ambassador.Route
	alert       alert.Config
	outbox      string // address of POST /outbox; empty: not served
	outboxToken string
	topics      []string
	parts       ambassador.Parts
	definitions int // the number of sagas' definitions
	remember    time.Duration
	admin       string

	adminTokenNow, outboxTokenNow *latest // the current tokens of the files

	again   func() (values, error) // reads the addresses that follow reads
	reloads sync.Mutex             // of alert and alerts
	alerts  *alert.Notifier        // nil: none yet

	level      zerolog.Level
	inTheClear string // as of Servers
}

// mostTransactions bounds the open transactions, each with the requests of its batch. A few large ones need fewer commits.
const mostTransactions = 4

// ambassadorPlan reads and validates all settings. It returns the first error, which is of usage.
func (p Program) ambassadorPlan(cmd *cobra.Command, log zerolog.Logger) (*ambassadorPlan, error) {
	l, err := p.loadFile(cmd, ambassadorProgram, ambassadorSettings)
	if err != nil {
		return nil, err
	}
	commands, given := l.top[commandsKey]
	delete(l.top, commandsKey)
	if err := l.refuseUnknown("", l.top, ambassadorSettings); err != nil {
		return nil, err
	}
	v, err := l.process(ambassadorSettings...)
	if err != nil {
		return nil, err
	}
	out := &ambassadorPlan{inTheClear: v.inTheClear()}
	out.parts = p.Parts()
	for _, step := range []func(values) error{
		out.readProcess, out.readKafka, out.readService, out.readParticipant, out.readOutbox, out.readSagas,
	} {
		if err := step(v); err != nil {
			return nil, err
		}
	}
	switch {
	case !given && out.definitions == 0:
		return nil, usagef("%s is not set: want a list in the file of --%s, each with a type: the commands that are consumed",
			commandsKey, configFlag)
	case given && out.service.BaseURL == "":
		return nil, v.required(serviceURL, "where the service is, such as http://127.0.0.1:8080")
	case given:
		if out.routes, err = l.readCommands(commands); err != nil {
			return nil, err
		}
	}
	if p.Dial != nil {
		out.database.ConnConfig.DialFunc = p.Dial
	}
	out.participant.Kafka = append(out.participant.Kafka, p.Kafka...)
	out.participant.Log = log.With().Stringer("hop", out.participant.Hop).Logger()
	out.alert.Log = out.participant.Log
	if err := out.alert.Validate(); err != nil { // the value itself is a secret
		return nil, usagef("%s (from %s): %w", tellURL.name, v.from[tellURL.name], err)
	}
	return out, nil
}

func (a *ambassadorPlan) readProcess(v values) (err error) {
	if a.database, err = v.database(); err != nil {
		return err
	}
	process, err := v.processPlan()
	if err != nil {
		return err
	}
	a.admin, a.adminTokenNow, a.level = process.admin, process.tokenNow, process.level
	text, err := v.oneOf(migrate)
	a.migrate = text == "true"
	return err
}

func (a *ambassadorPlan) readKafka(v values) (err error) {
	c := &a.participant
	if c.Brokers, err = v.brokerList(); err != nil {
		return err
	}
	if c.Kafka, err = v.kafka(); err != nil {
		return err
	}
	flow, name, ok := strings.Cut(v.text[hop.name], ".")
	if !ok {
		return v.required(hop, "the flow and the hop, such as order.shipping")
	}
	if c.Hop, err = topics.NewHop(flow, name); err != nil {
		return usagef("%s (from %s): %w", hop.name, v.from[hop.name], err)
	}
	c.Group, c.Source = v.text[group.name], v.text[named.name]
	a.alert = alert.Config{URL: v.text[tellURL.name], Source: c.Hop.Name(), Drain: 2 * time.Second}
	n, err := v.number(partitions)
	c.Partitions = int32(n)
	if err != nil || v.text[registry.name] == "" {
		return err
	}
	if a.registry, err = schemas.NewRegistry(v.text[registry.name]); err != nil {
		return usagef("%s (from %s): %w", registry.name, v.from[registry.name], err)
	}
	return nil
}

func (a *ambassadorPlan) readService(v values) (err error) {
	c := &a.service
	c.BaseURL = v.text[serviceURL.name]
	if c.BaseURL == "" && v.text[sagaFiles.name] != "" {
		return nil // a hop that only coordinates sagas needs none
	}
	if c.BaseURL == "" {
		return v.required(serviceURL, "where the service is, such as http://127.0.0.1:8080")
	}
	if token := v.text[serviceToken.name]; token != "" {
		c.Header = http.Header{"Authorization": {"Bearer " + token}} // replaced by bearer if the token is in a file
	}
	text, err := v.oneOf(mode)
	if err != nil {
		return err
	}
	c.Mode = ambassador.Mode(text)
	if text, err = v.oneOf(retry400); err != nil {
		return err
	}
	c.Retry400 = text == "true"
	kilobytes, err := v.number(maxAnswer)
	if err != nil {
		return err
	}
	c.MaxBody = kilobytes << 10
	if c.Sign, err = v.signer(); err != nil {
		return err
	}
	requests, err := v.number(atOnce)
	if err != nil {
		return err
	}
	encrypted, err := v.tls(toService)
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if encrypted != nil {
		if u, err := url.Parse(c.BaseURL); err == nil { // otherwise ambassador.New reports the error
			config = encrypted.to(u.Hostname())
		}
	}
	c.Transport = ambassador.NewTransport(config, requests)
	if v.path[serviceToken.name] != "" {
		c.Transport = bearer{c.Transport, v.latest(serviceToken, nil)}
	}
	if _, err := ambassador.New(*c); err != nil { // no error has the address or a token
		return usagef("%s (from %s): %w", serviceURL.name, v.from[serviceURL.name], err)
	}
	return nil
}

func (v values) signer() (ambassador.Signer, error) {
	kind, err := v.oneOf(signature)
	secret := v.text[signingSecret.name]
	switch {
	case err != nil:
		return nil, err
	case kind == "none" && secret != "":
		return nil, usagef("%s (from %s) is set, and %s is none: set it to standard-webhooks or github",
			signingSecret.name, v.from[signingSecret.name], signature.name)
	case kind == "none":
		return nil, nil
	case secret == "":
		return nil, v.required(signingSecret, "a secret, since signature is "+kind)
	}
	sign := ambassador.StandardWebhooks
	if kind == "github" {
		sign = ambassador.GitHub
	}
	if _, err := sign(secret); err != nil {
		return nil, usagef("%s (from %s): %w", signingSecret.name, v.from[signingSecret.name], err)
	}
	usable := func(secret string) bool { _, err := sign(secret); return err == nil }
	return signsNow(v.latest(signingSecret, usable), sign), nil
}

func (a *ambassadorPlan) readParticipant(v values) (err error) {
	c := &a.participant
	requests, err := v.number(atOnce)
	if err != nil {
		return err
	}
	c.Concurrency = min(mostTransactions, requests)
	c.Batch = requests / c.Concurrency
	c.Immediate = -1 // do not retry a failing service at once
	c.Codec = ambassador.Codec{}
	a.database.MaxConns = max(a.database.MaxConns, int32(c.Concurrency+4))
	if c.Retry.Attempts, err = v.number(tries); err != nil {
		return err
	}
	for s, field := range map[*setting]*time.Duration{
		&timeout: &c.Timeout, &ending: &c.Drain, &firstRetry: &c.Retry.Initial, &longestRetry: &c.Retry.Cap, &postsKept: &a.remember,
	} {
		if *field, err = v.duration(*s); err != nil {
			return err
		}
	}
	if c.Retry.Cap < c.Retry.Initial {
		return v.bad(longestRetry, "no less than "+firstRetry.name)
	}
	return nil
}

func (a *ambassadorPlan) readOutbox(v values) (err error) {
	a.outbox, a.outboxToken, a.outboxTokenNow = v.text[posts.name], v.text[postsToken.name], v.latest(postsToken, isToken)
	for topic := range strings.SplitSeq(v.text[postsTopics.name], ",") {
		if topic = strings.TrimSpace(topic); topic != "" {
			a.topics = append(a.topics, topic)
		}
	}
	if a.outbox == "" {
		return nil
	}
	if _, err := v.address(posts); err != nil {
		return err
	}
	return v.guarded(posts, postsToken)
}

// readCommands reads the commands of the file.
func (l *settingsOf) readCommands(given any) (routes []ambassador.Route, err error) {
	list, ok := given.([]any)
	if !ok || len(list) == 0 || len(list) > mostCommands {
		return nil, usagef("config %s: %s: want a list of 1 to %d commands, each with a type", l.path, commandsKey, mostCommands)
	}
	seen := make(map[string]bool)
	for n, one := range list {
		r, err := readCommand(one)
		switch {
		case err != nil:
			return nil, usagef("config %s: %s: number %d: %w", l.path, commandsKey, n+1, err)
		case seen[r.Type]:
			return nil, usagef("config %s: %s: two are of type %q", l.path, commandsKey, r.Type)
		}
		seen[r.Type] = true
		routes = append(routes, r)
	}
	return routes, nil
}

func readCommand(given any) (r ambassador.Route, err error) {
	texts, err := textsOf(given, "type", "path", "success", "failure", "next-topic", "next-type")
	if err != nil {
		return r, err
	}
	r = ambassador.Route{Type: texts["type"], Path: texts["path"], Success: texts["success"], Failure: texts["failure"]}
	if r.Path == "" && r.Type != (ambassador.Call{}).MessageType() {
		r.Path = "/"
	}
	topic, typ := texts["next-topic"], texts["next-type"]
	if (topic == "") != (typ == "") {
		return r, errors.New("next-topic and next-type: set both or none")
	}
	if topic != "" {
		r.Next = &ambassador.Next{Topic: topic, Type: typ}
	}
	return r, r.Check()
}

// textsOf returns the values of an object as text. It refuses keys other than keys, and values that are not text.
func textsOf(given any, keys ...string) (map[string]string, error) {
	object, ok := given.(map[string]any)
	if !ok {
		return nil, errors.New("it is no set of settings")
	}
	texts := make(map[string]string)
	for key, value := range object {
		text, is := value.(string)
		switch {
		case !slices.Contains(keys, key):
			return nil, fmt.Errorf("unknown key %q; known are %s", key, strings.Join(keys, ", "))
		case !is:
			return nil, fmt.Errorf("%s: want text", key)
		}
		texts[key] = text
	}
	return texts, nil
}
