package sidecar

import (
	"github.com/troupe-go/troupe/alert"
	"github.com/troupe-go/troupe/relay"
)

// tellOfParked gives the relay the hook that tells a webhook of parked rows. Nil: there is no webhook, and the relay's log
// has to do.
func (p *plan) tellOfParked() (*alert.Notifier, error) {
	if p.alert.URL == "" {
		return nil, nil
	}
	alerts, err := alert.New(p.alert)
	if err != nil {
		return nil, err
	}
	p.relay.Hooks.Troubled = func(t relay.Trouble) {
		if t.Parked {
			alerts.Notify(alert.Incident{
				Kind: "parked row", Where: t.Topic, Subject: p.relay.Service, ID: t.ID.String(), Text: t.Err.Error(),
			})
		}
	}
	return alerts, nil
}

// endAlerts sends what is still counted.
func (p *plan) endAlerts(alerts *alert.Notifier) {
	if alerts == nil {
		return
	}
	if err := alerts.Close(); err != nil {
		p.log.Error().Err(err).Msg("ended")
	}
}
