package saga

import (
	"encoding/json"
	"math"
	"strconv"
)

// Values of events, variables and deadlines have one form in a decision, in the log and in the stored state: whole numbers
// are int64, doubles are float64 also where they are whole. JSON tells the two apart by the point: 10 and 10.0. A decision
// from the log so sees what the first one saw.

// fields writes doubles with their point.
type fields map[string]any

func (f fields) MarshalJSON() ([]byte, error) {
	if f == nil {
		return []byte("null"), nil
	}
	return json.Marshal(pointed(map[string]any(f)))
}

// pointed copies v with its doubles as JSON numbers that are read as doubles again, also after Postgres has rewritten
// them.
func pointed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, inner := range v {
			m[name] = pointed(inner)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, inner := range v {
			l[i] = pointed(inner)
		}
		return l
	case float32:
		return pointed(float64(v))
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			return json.Number(strconv.FormatFloat(v, 'f', 1, 64))
		}
	}
	return v
}

// MarshalJSON keeps doubles apart from whole numbers in Fields.
func (e Event) MarshalJSON() ([]byte, error) {
	type event Event
	return json.Marshal(struct {
		event
		Fields fields `json:"fields,omitempty"`
	}{event(e), e.Fields})
}

// MarshalJSON keeps doubles apart from whole numbers in Data.
func (s State) MarshalJSON() ([]byte, error) {
	type state State
	return json.Marshal(struct {
		state
		Data fields `json:"data"`
	}{state(s), s.Data})
}

// MarshalJSON keeps doubles apart from whole numbers in Payload.
func (a Armed) MarshalJSON() ([]byte, error) {
	type armed Armed
	return json.Marshal(struct {
		armed
		Payload fields `json:"payload,omitempty"`
	}{armed(a), a.Payload})
}
