package ambassador

import "encoding/json"

// callType is the type of a Call.
const callType = "troupe.Call"

// A Call is a command: a request to be made to the service. Like its answers, it is JSON whatever codec the flow uses.
type Call struct {
	// Method is GET, POST, PUT, PATCH or DELETE.
	Method string `json:"method"`
	// Path is appended to Config.BaseURL. It is escaped, begins with a slash, has no query and no fragment, and at most 2,048
	// bytes.
	Path string `json:"path"`
	// Body is sent unchanged. If it is missing or null, the request has no body.
	Body json.RawMessage `json:"body,omitempty"`
}

// MessageType returns the command's ce_type.
func (Call) MessageType() string { return callType }

// CallDone is the success event: the service has executed the request.
type CallDone struct {
	Status int `json:"status"`
	// Body is the response's body: JSON unchanged, anything else as a JSON string, an empty body as null.
	Body json.RawMessage `json:"body"`
}

// MessageType returns the event's ce_type.
func (CallDone) MessageType() string { return "troupe.CallDone" }

// CallRefused is the failure event: the service has refused the request.
type CallRefused struct {
	Status int `json:"status"`
	// Body is as in CallDone; null if it was larger than Config.MaxBody.
	Body json.RawMessage `json:"body"`
	// Reason is the first non-empty text of the body's fields reason, detail and title (the latter two are from RFC 9457),
	// else the status with its name. At most 500 bytes.
	Reason string `json:"reason"`
}

// MessageType returns the event's ce_type.
func (CallRefused) MessageType() string { return "troupe.CallRefused" }
