package sagas

import (
	"sync"
	"time"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

// maxSteps are in a generation. There are two, so that what nobody ends is forgotten some time.
const maxSteps = 32_768

// steps are those under way whose beginning this process has seen.
type steps struct {
	mu       sync.Mutex
	now, old map[underWay]time.Time
}

type underWay struct{ id, step, operation string }

// ended is a step that has an end.
type ended struct {
	step, operation, end string
	took                 time.Duration
}

const (
	forward    = "forward"
	compensate = "compensate"
)

// begins and ends say what moments mean; an end without a word is not measured.
var (
	begins = map[string]string{saga.StepStarted: forward, saga.CompensationStarted: compensate}
	ends   = map[string]struct{ operation, end string }{
		saga.StepCompleted: {forward, "completed"}, saga.StepFailed: {forward, "refused"}, saga.StepExhausted: {forward, "exhausted"},
		saga.StepTimedOut: {forward, "timeout"}, saga.StepResolved: {forward, ""}, saga.StepSkipped: {forward, ""},
		saga.CompensationCompleted: {compensate, "completed"}, saga.CompensationFailed: {compensate, "failed"},
	}
)

// take gives the steps that a decision ended, and keeps those that it began.
func (s *steps) take(d coordinator.Decided) (all []ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	person := d.Event.Kind.Action()
	for _, m := range d.Effects.Moments {
		if operation := begins[m.What]; operation != "" {
			s.begin(underWay{d.ID, m.Step, operation}, d.At)
			continue
		}
		e, ok := ends[m.What]
		if !ok {
			continue
		}
		began, known := s.end(underWay{d.ID, m.Step, e.operation})
		if known && !person && e.end != "" {
			all = append(all, ended{m.Step, e.operation, e.end, max(d.At.Sub(began), 0)})
		}
	}
	return all
}

func (s *steps) begin(k underWay, at time.Time) {
	if s.now == nil || len(s.now) >= maxSteps {
		s.now, s.old = make(map[underWay]time.Time), s.now
	}
	s.now[k] = at
}

func (s *steps) end(k underWay) (began time.Time, known bool) {
	if began, known = s.now[k]; !known {
		began, known = s.old[k]
	}
	delete(s.now, k)
	delete(s.old, k)
	return began, known
}
