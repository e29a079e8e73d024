package sidecar

import (
	"github.com/troupe-go/troupe/alert"
	"github.com/troupe-go/troupe/relay"
)

// tellOfParked gives the relay the hook that tells a webhook of parked rows. Nil: there is no webhook, and the relay's log
// has to do.
func (o *outboxPlan) tellOfParked() (*alert.Notifier, error) {
	if o.alert.URL == "" {
		return nil, nil
	}
	alerts, err := alert.New(o.alert)
	if err != nil {
		return nil, err
	}
	service := o.relay.Service
	o.relay.Hooks.Troubled = func(t relay.Trouble) {
		if t.Parked {
			alerts.Notify(alert.Incident{
				Kind: "parked row", Where: t.Topic, Subject: service, ID: t.ID.String(), Text: t.Err.Error(),
			})
		}
	}
	return alerts, nil
}
