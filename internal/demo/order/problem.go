package order

import (
	"encoding/json"
	"net/http"
)

// A problem is an error response in the form of RFC 9457: application/problem+json.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Field  string `json:"field,omitempty"` // of the request
	Detail string `json:"detail"`
}

func (p problem) Error() string { return p.Detail }

// invalid returns the problem of a request that fails at every attempt.
func invalid(field, reason string) problem {
	return problem{Status: http.StatusBadRequest, Field: field, Detail: reason}
}

func (p problem) write(w http.ResponseWriter) {
	p.Title = http.StatusText(p.Status)
	writeJSON(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // it fails only if the client is gone
}
