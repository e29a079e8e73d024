package alert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"text/template"
	"time"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/retry"
)

// Config configures a Notifier. The zero value logs and counts, and posts nothing.
type Config struct {
	// URL of the webhook, http or https. Empty: alerts are only logged.
	URL string
	// Template is the template of the body, in text/template, executed with an Alert. The function json renders a value as JSON;
	// chat removes from a text everything on which chat programs act: links, mentions and control characters. Default: {"text":
	// {{json (chat .Summary)}}}, which Slack, Mattermost, Rocket.Chat, Google Chat and Teams understand.
	Template string
	// ContentType of the body. Default application/json; then the result of Template for a trial Alert must be JSON.
	ContentType string
	// Header is added to the request: tokens, for example.
	Header http.Header
	// Source is the service that sends the alerts.
	Source string

	// Every is the minimum time between two alerts of one cause. Default 15 min.
	Every time.Duration
	// Causes bounds the different causes that are counted at a time. Default 1,000.
	Causes int
	// Timeout of one request. Default 10 s.
	Timeout time.Duration
	// Retry of an alert. Default: 1 s at first, up to 30 s, 5 attempts.
	Retry retry.Policy
	// Drain bounds the time of Close. Default 10 s.
	Drain time.Duration
	// Transport makes the requests. Default: http.DefaultTransport's settings, on connections of its own.
	Transport http.RoundTripper
	// Log gets a line for each alert. The zero value discards them.
	Log zerolog.Logger
}

const (
	defaultTemplate = `{"text": {{json (chat .Summary)}}}`
	contentJSON     = "application/json"
)

func (c Config) withDefaults() (Config, error) {
	fill(&c.Template, defaultTemplate)
	fill(&c.ContentType, contentJSON)
	fill(&c.Every, 15*time.Minute)
	fill(&c.Causes, 1000)
	fill(&c.Timeout, 10*time.Second)
	fill(&c.Drain, 10*time.Second)
	fill(&c.Retry.Initial, time.Second)
	fill(&c.Retry.Cap, max(30*time.Second, c.Retry.Initial))
	fill(&c.Retry.Attempts, 5)
	if c.Every < 0 || c.Causes < 0 || c.Timeout < 0 || c.Drain < 0 {
		return c, fmt.Errorf("every %s, %d causes, timeout %s, drain %s: want none below zero", c.Every, c.Causes, c.Timeout, c.Drain)
	}
	return c, c.Retry.Validate()
}

func fill[T comparable](field *T, with T) {
	var zero T
	if *field == zero {
		*field = with
	}
}

// Validate returns the error that New would return, and starts nothing.
func (c Config) Validate() error {
	_, _, _, err := c.read()
	return err
}

// read validates everything, and returns the parsed URL and template.
func (c Config) read() (Config, *url.URL, *template.Template, error) {
	c, err := c.withDefaults()
	var u *url.URL
	if err == nil {
		u, err = parseURL(c.URL)
	}
	var t *template.Template
	if err == nil {
		t, err = parseTemplate(c)
	}
	if err != nil {
		return c, nil, nil, fmt.Errorf("alert: %w", err)
	}
	return c, u, t, nil
}

// parseURL never repeats its input in an error: the whole URL is a secret.
func parseURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the URL is none like https://chat.example/hooks/…")
	}
	if u.User != nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("the URL to %s has a password and is plain http to another machine: use https", u.Host)
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// bodyLimit bounds the body in bytes.
const bodyLimit = 64 << 10

// parseTemplate executes the template with an Alert whose fields are all set: so an unknown field is an error at start, not at
// the first alert.
func parseTemplate(c Config) (*template.Template, error) {
	t, err := template.New("alert").Funcs(template.FuncMap{"json": toJSON, "chat": Chat}).Parse(c.Template)
	if err != nil {
		return nil, fmt.Errorf("the template cannot be read: %w", err)
	}
	trial := Alert{
		Incident: Incident{
			Kind: "dead letter", Class: "transient", Where: "order.payment/Charge", Subject: "order.payment", Key: `o-"1"`, ID: "a",
			At: time.Unix(0, 0), Text: "a \"quoted\" error\nof two lines",
		},
		Source: c.Source, Count: 2, Since: time.Unix(0, 0), Dropped: 1,
	}
	body, err := render(t, trial)
	if err != nil {
		return nil, fmt.Errorf("the template cannot be filled: %w", err)
	}
	if c.ContentType == contentJSON && !json.Valid(body) {
		return nil, errors.New("the template makes no JSON of texts with quotes and line breaks: write {{json .Text}} without quotes around it")
	}
	return t, nil
}

func render(t *template.Template, a Alert) ([]byte, error) {
	var b bytes.Buffer
	if err := t.Execute(&b, a); err != nil {
		return nil, err
	}
	if b.Len() > bodyLimit {
		return nil, fmt.Errorf("a body of %d bytes: want at most %d", b.Len(), bodyLimit)
	}
	return b.Bytes(), nil
}

func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// Chat replaces the parts of external text on which chat programs act: <!channel>, links with another text, @all.
func Chat(s string) string { return forChats.Replace(line(s)) }

var forChats = strings.NewReplacer("<", "‹", ">", "›", "@", "＠")
