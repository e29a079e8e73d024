package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits.
const (
	MaxCatchUp   = 100
	maxSchedules = 1000
	maxData      = 64 << 10 // bytes of JSON
	maxKey       = 1000     // bytes
	// onTime limits the delay of an occurrence that is not caught up.
	onTime = time.Minute
)

// A Spec is a schedule as an operator sets it.
type Spec struct {
	Name string `json:"name"`
	Cron string `json:"cron"`
	Zone string `json:"zone"`
	// CatchUp is the number of missed occurrences that are run late.
	CatchUp int `json:"catch_up"`
	// Saga is the type of saga that is started. Without it, a message is sent.
	Saga string `json:"saga,omitempty"`
	// Topic, Key and Type are the message's. The default of Key is the name.
	Topic string `json:"topic,omitempty"`
	Key   string `json:"key,omitempty"`
	Type  string `json:"type,omitempty"`
	// Data is a JSON object: the saga's variables, without its key, or the message's payload.
	Data json.RawMessage `json:"data"`
}

// A Schedule is a Spec with its state.
type Schedule struct {
	Spec
	NextAt      time.Time  `json:"next_at"`
	LastAt      *time.Time `json:"last_at"`
	RanAt       *time.Time `json:"ran_at"`
	RequestedAt *time.Time `json:"requested_at"`
	PausedAt    *time.Time `json:"paused_at"`
	SetAt       time.Time  `json:"set_at"`
	Error       string     `json:"error,omitempty"`
	Tries       int        `json:"tries"`
}

var (
	nameRule  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	topicRule = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
)

// Check returns an error if a field has no usable value, and else the cron expression.
func (s *Spec) Check() (Cron, error) {
	c, err := ParseCron(s.Cron, s.Zone)
	switch {
	case !nameRule.MatchString(s.Name):
		return c, fmt.Errorf("name %q: want 1 to 63 lower-case letters, digits and dashes", s.Name)
	case err != nil:
		return c, err
	case s.CatchUp < 0 || s.CatchUp > MaxCatchUp:
		return c, fmt.Errorf("catch-up %d: want 0 to %d occurrences", s.CatchUp, MaxCatchUp)
	case (s.Saga == "") == (s.Topic == ""):
		return c, errors.New("want either a saga to start, or a topic to send a message to")
	case s.Saga != "" && (s.Key != "" || s.Type != ""):
		return c, errors.New("a saga has no key or type of its own: its key is the schedule's name with the time of the occurrence")
	case s.Topic != "" && !topicRule.MatchString(s.Topic):
		return c, fmt.Errorf("topic %q: want the name of a topic", s.Topic)
	case s.Topic != "" && (s.Type == "" || len(s.Type) > 255):
		return c, fmt.Errorf("type %q: want the type of a message", s.Type)
	case len(s.Key) > maxKey || !text(s.Key) || !text(s.Type) || !text(s.Saga):
		return c, fmt.Errorf("want a key of at most %d bytes, and text in UTF-8 without the character NUL", maxKey)
	case len(s.Data) > maxData:
		return c, fmt.Errorf("data of %d bytes: at most %d", len(s.Data), maxData)
	}
	if len(s.Data) == 0 {
		s.Data = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(s.Data, &object) != nil || object == nil {
		return c, errors.New("data: want a JSON object")
	}
	if bytes.Contains(s.Data, []byte(`\u0000`)) {
		return c, errors.New("data: the character NUL cannot be stored")
	}
	return c, nil
}

func text(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// Target returns in words what the schedule does.
func (s *Spec) Target() string {
	if s.Saga != "" {
		return "starts saga " + s.Saga
	}
	return "sends " + s.Type + " to " + s.Topic
}

// Occurrence returns the name of the occurrence of a time: the key of its saga, and the idempotency key of its message.
func (s *Spec) Occurrence(at time.Time) string {
	return s.Name + "@" + at.UTC().Format(time.RFC3339Nano)
}

// A turn is the decision on a schedule that is due.
type turn struct {
	run     time.Time // the occurrence to run; zero: none
	next    time.Time // next_at after it
	skipped bool      // occurrences before run, or before next if there is no run, are skipped
}

// decide returns the turn of s at now, by the database's clock.
func (s *Schedule) decide(c Cron, now time.Time) (t turn) {
	if s.RequestedAt != nil {
		return turn{run: *s.RequestedAt, next: s.NextAt}
	}
	planned := c.byTheRulesOfNow(s.NextAt)
	due, skipped := c.last(planned, now, max(1, s.CatchUp))
	switch {
	case len(due) == 0: // it is later by the rules of now
		return turn{next: planned}
	case s.CatchUp == 0 && min(now.Sub(due[0]), now.Sub(s.NextAt)) > onTime:
		return turn{next: c.Next(due[0]), skipped: true}
	case len(due) > 1:
		return turn{run: due[0], next: due[1], skipped: skipped}
	}
	return turn{run: due[0], next: c.Next(due[0]), skipped: skipped}
}
