// Package reactions is what services say about themselves: which messages each of them reacts to, and what it then sends.
// A service keeps it beside its code, in reactions.json; all of them together are a flow without an orchestrator.
package reactions

// A Service is one hop's part in a flow.
type Service struct {
	// Hop is "flow.hop", as in topics.ParseHop.
	Hop string `json:"hop"`
	// Starts are messages that it sends by itself: because of a request, or of the clock.
	Starts []Message `json:"starts,omitempty"`
	// Reactions are what it does about single messages.
	Reactions []Reaction `json:"reactions,omitempty"`
	// Joins are what it does when several messages of one key have come.
	Joins []Join `json:"joins,omitempty"`
	// Expectations are what it waits for.
	Expectations []Expectation `json:"expectations,omitempty"`
}

// A Message is a type on a topic: an event on its hop's events topic, or a command on its hop's commands topic.
type Message struct {
	// Topic is a name as in package topics, "order.payment.events".
	Topic string `json:"topic"`
	// Type is ce_type, "troupe.order.Paid".
	Type string `json:"type"`
	// Last says that a flow may end with it: nobody has to react. Of a failure it says, too, that nothing has to be undone.
	// It is said where a message is sent.
	Last bool `json:"last,omitempty"`
}

// A Reaction is a handler: for each message On, one of what it lists is sent when it is done.
type Reaction struct {
	On Message `json:"on"`
	// Success is what it sends when it has done its part. Several are sent together.
	Success []Message `json:"success,omitempty"`
	// Failure is what it sends when it refuses, or has given up.
	Failure []Message `json:"failure,omitempty"`
	// Undoes names the types of the service's own success events that it takes back: it is a compensation.
	Undoes []string `json:"undoes,omitempty"`
	// Irreversible is why what it does is not undone when the flow goes back; "" where it is.
	Irreversible string `json:"irreversible,omitempty"`
	// Attempts is how often it is tried before it is parked; 0: as the participant has it.
	Attempts int `json:"attempts,omitempty"`
}

// A Join waits for one of each of Await with the same key, in any order, and then sends Success once.
type Join struct {
	// Name is unique in its service.
	Name  string    `json:"name"`
	Await []Message `json:"await"`
	// Within is how long after the first one the last may come, as in time.ParseDuration; "": for ever.
	Within  string    `json:"within,omitempty"`
	Success []Message `json:"success"`
	// Expired is what is sent when the time is over.
	Expired []Message `json:"expired,omitempty"`
	// Broken are failure events which say that one of Await will not come: it is over, and sends nothing.
	Broken []Message `json:"broken,omitempty"`
}

// An Expectation is a promise of others: after After, one of Expect comes within Within for the same key. When it does not,
// Raise is sent, once.
type Expectation struct {
	// Name is unique in its service.
	Name   string    `json:"name"`
	After  Message   `json:"after"`
	Expect []Message `json:"expect"`
	// Within is as in time.ParseDuration.
	Within string  `json:"within"`
	Raise  Message `json:"raise"`
}
