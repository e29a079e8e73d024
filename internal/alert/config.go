package alert

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/retry"
)

// Config configures a Notifier. The zero value logs and counts, and posts nothing.
type Config struct {
	// URL of the webhook, http or https. Empty: alerts are only logged.
	URL string
	// Body returns the body of an alert, at most 64 KiB. Default: {"text": …} with Chat of the summary, which Slack, Mattermost, Rocket.Chat,
	// Google Chat and Teams understand. It is a function, not a template, since a template would
	// make the relay's program 4.6 MB larger (internal/arch).
	Body func(Alert) ([]byte, error)
	// ContentType of the body. Default application/json; then the body of a trial Alert must be JSON.
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

const contentJSON = "application/json"

// forChat returns the default body.
func forChat(a Alert) ([]byte, error) {
	return json.Marshal(struct {
		Text string `json:"text"`
	}{Chat(a.Summary())})
}

func (c Config) withDefaults() (Config, error) {
	if c.Body == nil {
		c.Body = forChat
	}
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
	_, _, err := c.read()
	return err
}

// read validates everything, and returns the parsed URL.
func (c Config) read() (Config, *url.URL, error) {
	c, err := c.withDefaults()
	var u *url.URL
	if err == nil {
		u, err = parseURL(c.URL)
	}
	if err == nil {
		err = c.tryBody()
	}
	if err != nil {
		return c, nil, fmt.Errorf("alert: %w", err)
	}
	return c, u, nil
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

// tryBody makes the body of an alert whose fields are all set, so that a mistake is an error at start and not at the first alert.
func (c Config) tryBody() error {
	body, err := c.render(Alert{
		Incident: Incident{
			Kind: "dead letter", Class: "transient", Where: "order.payment/Charge", Subject: "order.payment", Key: `o-"1"`, ID: "a",
			At: time.Unix(0, 0), Text: "a \"quoted\" error\nof two lines",
		},
		Source: c.Source, Count: 2, Since: time.Unix(0, 0), Dropped: 1,
	})
	if err != nil {
		return err
	}
	if c.ContentType == contentJSON && !json.Valid(body) {
		return errors.New("the body of texts with quotes and line breaks is no JSON")
	}
	return nil
}

// render returns the body of an alert.
func (c Config) render(a Alert) ([]byte, error) {
	body, err := c.Body(a)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the body: %w", err)
	case len(body) > bodyLimit:
		return nil, fmt.Errorf("a body of %d bytes: want at most %d", len(body), bodyLimit)
	}
	return body, nil
}

// Chat replaces the parts of external text on which chat programs act: <!channel>, links with another text, @all.
func Chat(s string) string { return forChats.Replace(line(s)) }

var forChats = strings.NewReplacer("<", "‹", ">", "›", "@", "＠")
