package ambassador

import "encoding/json"

// A Call is a command: a request to be made of the service. It is JSON whatever codec the flow uses, as its answers are.
type Call struct {
	// Method is GET, POST, PUT, PATCH or DELETE.
	Method string `json:"method"`
	// Path is added to Config.BaseURL: escaped, from a slash on, without query and fragment, at most 2,048 bytes.
	Path string `json:"path"`
	// Body is sent as it is. None, and null: the request has none.
	Body json.RawMessage `json:"body,omitempty"`
}

// MessageType is the command's ce_type.
func (Call) MessageType() string { return "troupe.Call" }

// CallDone is the success event: the service has done what it was asked for.
type CallDone struct {
	Status int `json:"status"`
	// Body is what the service said: JSON as it is, anything else as a JSON string, nothing as null.
	Body json.RawMessage `json:"body"`
}

// MessageType is the event's ce_type.
func (CallDone) MessageType() string { return "troupe.CallDone" }

// CallRefused is the failure event: the service said no.
type CallRefused struct {
	Status int `json:"status"`
	// Body is as in CallDone; null where it was larger than Config.MaxBody.
	Body json.RawMessage `json:"body"`
	// Reason is the first text there is of the body's fields reason, detail and title (the latter two are of RFC 9457),
	// else the status with its name. At most 500 bytes.
	Reason string `json:"reason"`
}

// MessageType is the event's ce_type.
func (CallRefused) MessageType() string { return "troupe.CallRefused" }
