package participant

// Exhausted is the body of the event by which a hop reports that one of its messages became a dead letter. It is JSON whatever codec the flow uses.
// An orchestrator that receives it parks its saga, since the message may still be redriven.
type Exhausted struct {
	DeadLetterID string `json:"dead_letter_id"` // troupe.dead_letters.id in the hop's database
	Type         string `json:"type"`           // of the message; empty if it had none
	Handler      string `json:"handler"`        // group/type; the group alone if no handler fitted
	Class        string `json:"class"`          // a Class
	Error        string `json:"error"`          // of the last attempt, at most 2,000 bytes
	Attempts     int    `json:"attempts"`       // runs that failed
}

// MessageType returns the event's ce_type.
func (Exhausted) MessageType() string { return "troupe.Exhausted" }

// PlainJSON makes participants encode and decode the body as JSON.
func (Exhausted) PlainJSON() {}
