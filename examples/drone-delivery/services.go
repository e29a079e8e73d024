package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// The three services know no messages: they answer a request with 200 when it is done, and with 400 when it should be repeated.

// scheduler gives a drone to a delivery, if one is free.
type scheduler struct {
	mu     sync.Mutex
	grants map[string]int // how often a delivery is still to ask in vain; less than 0 is for ever
}

func (s *scheduler) free(delivery string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.grants[delivery]
	if left > 0 {
		s.grants[delivery]--
	}
	return left == 0
}

// landed lets every delivery have a drone.
func (s *scheduler) landed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.grants)
}

// serves answers for a service of a name, and notes each request.
func serves(out io.Writer, service string, does func(delivery string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Delivery string `json:"delivery"`
		}
		status := http.StatusOK
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			status = http.StatusUnprocessableEntity // never retried
		} else if !does(body.Delivery) {
			status = http.StatusBadRequest
		}
		fmt.Fprintf(out, "  %-9s %-16s %s: %d\n", service, r.Header.Get("ce-type"), body.Delivery, status)
		w.WriteHeader(status)
		if status == http.StatusOK {
			_ = json.NewEncoder(w).Encode(body)
		}
	})
}

func always(string) bool { return true }
