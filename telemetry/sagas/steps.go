package sagas

import (
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/moments"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

// maxSteps bounds a generation. There are two generations, so that steps without an end are forgotten after some time.
const maxSteps = 32_768

// steps holds the running steps whose beginning this process has seen. The hooks of two concurrent decisions may be called in the
// reverse order: so an end is kept here until its beginning comes, too.
type steps struct {
	mu       sync.Mutex
	now, old map[underWay]told
}

// told is one side of a step: its beginning or, with the word for it, its end.
type told struct {
	at  time.Time
	end string
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

// begins and ends map history events to the beginnings and ends of steps; an end without a word is not measured.
var (
	begins = map[string]string{moments.StepStarted: forward, moments.CompensationStarted: compensate}
	ends   = map[string]struct{ operation, end string }{
		moments.StepCompleted: {forward, "completed"}, moments.StepFailed: {forward, "refused"}, moments.StepExhausted: {forward, "exhausted"},
		moments.StepTimedOut: {forward, "timeout"}, moments.StepResolved: {forward, ""}, moments.StepSkipped: {forward, ""},
		moments.CompensationCompleted: {compensate, "completed"}, moments.CompensationFailed: {compensate, "failed"},
	}
)

// take returns the steps that a decision ended, and stores the steps that it began.
func (s *steps) take(d coordinator.Decided) (all []ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	person := d.Event.Kind.Action() && d.Event.Kind != saga.ActAnswer // ActAnswer ends a step as the event from its hop does
	for _, m := range d.Effects.Moments {
		if operation := begins[m.What]; operation != "" {
			k := underWay{d.ID, m.Step, operation}
			if end := s.forget(k); end.end != "" && !end.at.Before(d.At) {
				all = append(all, ended{m.Step, operation, end.end, end.at.Sub(d.At)})
			} else {
				s.keep(k, told{at: d.At})
			}
			continue
		}
		e, ok := ends[m.What]
		if !ok {
			continue
		}
		k := underWay{d.ID, m.Step, e.operation}
		began := s.forget(k)
		switch {
		case person || e.end == "":
		case began.at.IsZero() || began.end != "":
			s.keep(k, told{d.At, e.end})
		default:
			all = append(all, ended{m.Step, e.operation, e.end, max(d.At.Sub(began.at), 0)})
		}
	}
	return all
}

func (s *steps) keep(k underWay, t told) {
	if s.now == nil || len(s.now) >= maxSteps {
		s.now, s.old = make(map[underWay]told), s.now
	}
	s.now[k] = t
}

func (s *steps) forget(k underWay) told {
	t, known := s.now[k]
	if !known {
		t = s.old[k]
	}
	delete(s.now, k)
	delete(s.old, k)
	return t
}
