package alert_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
)

// deadLetters returns hooks for participant.Config.Hooks.
func deadLetters(n *alert.Notifier, hop string) participant.Hooks {
	return participant.Hooks{AfterCommit: func(d participant.Delivery) {
		if d.Outcome == envelope.Exhausted {
			n.Notify(alert.Incident{
				Kind: "dead letter", Class: string(d.Class), Where: d.Handler, Subject: hop, Key: string(d.Message.Key), ID: d.Message.ID,
				Text: d.Err.Error(),
			})
		}
	}}
}

// parkedRows returns hooks for relay.Config.Hooks.
func parkedRows(n *alert.Notifier, service string) relay.Hooks {
	return relay.Hooks{PublishFailed: func(t relay.PublishFailure) {
		if t.Parked {
			n.Notify(alert.Incident{Kind: "parked row", Where: t.Topic, Subject: service, ID: t.ID.String(), Text: t.Err.Error()})
		}
	}}
}

func Example() {
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(string(body))
	}))
	defer chat.Close()

	n, err := alert.New(alert.Config{URL: chat.URL, Source: "payment"})
	if err != nil {
		fmt.Println(err)
		return
	}
	hooks := deadLetters(n, "order.payment")
	_ = parkedRows(n, "payment")
	hooks.AfterCommit(participant.Delivery{ // as the participant does
		Message: envelope.Message{Key: []byte("o-1"), ID: "0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f"}, Handler: "order.payment/ChargePayment",
		Outcome: envelope.Exhausted, Class: participant.Permanent, Err: errors.New("no such account"),
	})
	hooks.AfterCommit(participant.Delivery{Outcome: envelope.Success}) // causes no alert
	fmt.Println(n.Close())
	// Output:
	// {"text":"payment: dead letter: order.payment/ChargePayment: permanent: no such account; key o-1; id 0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f"}
	// <nil>
}
