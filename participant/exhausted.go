package participant

// Exhausted is the body of the exhausted event, by which a hop says that a message of its became a dead letter. It is
// JSON whatever codec the flow uses. Who decides what comes next parks on it: the message may still be redriven.
type Exhausted struct {
	DeadLetterID string `json:"dead_letter_id"` // troupe.dead_letters.id in the hop's database
	Type         string `json:"type"`           // of the message; empty where it had none
	Handler      string `json:"handler"`        // group/type; the group alone where no handler fitted
	Class        string `json:"class"`          // transient, permanent, poison, panic or timeout
	Error        string `json:"error"`          // of the last attempt, at most 2,000 bytes
	Attempts     int    `json:"attempts"`       // runs that failed
}

// MessageType is the event's ce_type.
func (Exhausted) MessageType() string { return "troupe.Exhausted" }

// PlainJSON makes it JSON.
func (Exhausted) PlainJSON() {}
