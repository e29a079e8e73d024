package demo

import (
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/participant"
)

// alert returns the configuration of the webhook. Its drain is short, so that the rest of the service's time to stop remains for
// the participant.
func (c Config) alert() alert.Config {
	return alert.Config{URL: c.AlertURL, Drain: 2 * time.Second, Log: c.Log}
}

// openAlerts returns the hooks that notify a webhook of dead letters, a function that notifies it of other incidents, and a function
// that closes it. Without a webhook the hooks are empty and the functions do nothing: then only the participant's log reports
// dead letters.
func openAlerts(cfg alert.Config, hop string) (hooks participant.Hooks, notify func(alert.Incident), closeAlerts func() error, err error) {
	if cfg.URL == "" {
		return hooks, func(alert.Incident) {}, func() error { return nil }, nil
	}
	cfg.Source = hop
	alerts, err := alert.New(cfg)
	if err != nil {
		return hooks, nil, nil, err
	}
	hooks.AfterCommit = func(d participant.Delivery) {
		if d.Outcome != envelope.Exhausted {
			return
		}
		alerts.Notify(alert.Incident{
			Kind: "dead letter", Class: string(d.Class), Where: d.Handler, Subject: hop, Key: string(d.Message.Key), ID: d.Message.ID,
			Text: d.Err.Error(),
		})
	}
	return hooks, alerts.Notify, alerts.Close, nil
}
