package sidecar

import (
	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/relay"
)

// tellOfParked adds to the relay the hook that notifies a webhook of parked rows. It returns nil if no webhook is configured:
// then only the relay's log reports them.
func (o *outboxPlan) tellOfParked() (*alert.Notifier, error) {
	if o.alert.URL == "" {
		return nil, nil
	}
	alerts, err := alert.New(o.alert)
	if err != nil {
		return nil, err
	}
	service := o.relay.Service
	o.relay.Hooks.PublishFailed = func(t relay.PublishFailure) {
		if t.Parked {
			alerts.Notify(alert.Incident{
				Kind: "parked row", Where: t.Topic, Subject: service, ID: t.ID.String(), Text: t.Err.Error(),
			})
		}
	}
	return alerts, nil
}
