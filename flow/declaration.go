package flow

// A Declaration states the part of a service in a flow: the messages that it reacts to, and the messages that it then sends. A service
// keeps it next to its code, in reactions.json.
type Declaration struct {
	// Hop is "flow.hop", as in topics.ParseHop.
	Hop string `json:"hop"`
	// Starts lists messages that it sends without a cause in the flow: because of a request, or of the clock.
	Starts []Message `json:"starts,omitempty"`
	// Reactions lists its handlers of single messages.
	Reactions []Reaction `json:"reactions,omitempty"`
	// Joins lists its handlers of several messages of one key.
	Joins []Join `json:"joins,omitempty"`
	// Expectations lists messages of others that must arrive in time.
	Expectations []Expectation `json:"expectations,omitempty"`
}

// A Message is a type on a topic: an event on its hop's events topic, or a command on its hop's commands topic.
type Message struct {
	// Topic is a name as in package topics, such as "order.payment.events".
	Topic string `json:"topic"`
	// Type is its ce_type, such as "troupe.order.Paid".
	Type string `json:"type"`
	// Last states that a flow may end with the message: no service has to react to it. For a failure it also states that nothing
	// has to be undone. Only the sender may set it.
	Last bool `json:"last,omitempty"`
}

// A Reaction is a handler of On: for each such message it sends the messages of Success or of Failure.
type Reaction struct {
	On Message `json:"on"`
	// Success lists the messages that it sends when it has done its part. Several are sent together.
	Success []Message `json:"success,omitempty"`
	// Failure lists the messages that it sends when it refuses, or has given up.
	Failure []Message `json:"failure,omitempty"`
	// Undoes lists types of the service's own success events that it undoes: the reaction is a compensation.
	Undoes []string `json:"undoes,omitempty"`
	// Irreversible is the reason why its effect is not undone when the flow compensates; "" if it is undone.
	Irreversible string `json:"irreversible,omitempty"`
	// Attempts limits how often a message is tried before it is parked; 0: as the participant is configured.
	Attempts int `json:"attempts,omitempty"`
}

// A Join waits for one message of each type of Await with the same key, in any order, and then sends Success once.
type Join struct {
	// Name is unique in its service.
	Name  string    `json:"name"`
	Await []Message `json:"await"`
	// Within limits the time between the first and the last message, in the format of time.ParseDuration; "": no limit.
	Within  string    `json:"within,omitempty"`
	Success []Message `json:"success"`
	// Expired lists the messages that are sent when Within has passed.
	Expired []Message `json:"expired,omitempty"`
	// Broken lists failure events which mean that a message of Await will not arrive: the join ends, and sends nothing.
	Broken []Message `json:"broken,omitempty"`
}

// An Expectation requires that after the message After, one of Expect arrives within Within, with the same key. If none does,
// Raise is sent, once.
type Expectation struct {
	// Name is unique in its service.
	Name   string    `json:"name"`
	After  Message   `json:"after"`
	Expect []Message `json:"expect"`
	// Within has the format of time.ParseDuration.
	Within string  `json:"within"`
	Raise  Message `json:"raise"`
	// Late lists the messages that are sent, all of them, if one of Expect arrives after Raise was sent.
	Late []Message `json:"late,omitempty"`
}
