package flow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// partName matches the names of joins and expectations. The names of their deadlines contain it.
var partName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$`)

// maxAwaited limits the messages of a join or an expectation: the row of a join lists all that have arrived.
const maxAwaited = 100

// name returns a message as it is written in tables and errors.
func name(m Message) string { return m.Topic + " " + m.Type }

func same(a, b Message) bool { return a.Topic == b.Topic && a.Type == b.Type }

func has(ms []Message, m Message) bool {
	return slices.ContainsFunc(ms, func(one Message) bool { return same(one, m) })
}

// read takes the joins, expectations and reactions from the declaration, and checks each by itself. The verifier of flows checks
// the declarations of a flow against each other.
func (s *Service) read() error {
	var wrong []error
	d := s.cfg.Declared
	for _, j := range d.Joins {
		read, err := newJoin(s, j)
		if err == nil && s.joins[j.Name] != nil {
			err = errors.New("declared twice")
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("join %q: %w", j.Name, err))
			continue
		}
		s.joins[j.Name] = read
	}
	for _, e := range d.Expectations {
		read, err := newExpectation(s, e)
		if err == nil && s.expectations[e.Name] != nil {
			err = errors.New("declared twice")
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("expectation %q: %w", e.Name, err))
			continue
		}
		s.expectations[e.Name] = read
	}
	for i, r := range d.Reactions {
		if err := readable(r.On); err != nil {
			wrong = append(wrong, fmt.Errorf("reaction %d: %w", i+1, err))
		}
		for _, other := range d.Reactions[:i] {
			if same(r.On, other.On) {
				wrong = append(wrong, fmt.Errorf("two reactions to %s", name(r.On)))
			}
		}
	}
	return errors.Join(wrong...)
}

// readable returns the reason why one of the messages cannot be consumed, or nil.
func readable(ms ...Message) error {
	for _, m := range ms {
		t, err := topics.Parse(m.Topic)
		switch {
		case err != nil:
			return err
		case m.Type == "":
			return fmt.Errorf("a message on %s without a type", m.Topic)
		case t.Kind != topics.Events && t.Kind != topics.Commands:
			return fmt.Errorf("%s: want an events or a commands topic", m.Topic)
		}
	}
	return nil
}

// within parses a positive duration.
func within(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("within %q: want a duration such as 30s", text)
	case d <= 0:
		return 0, fmt.Errorf("within %q: want more than nothing", text)
	}
	return d, nil
}

// reaction returns the declared reaction to a message, or an empty one.
func (s *Service) reaction(on Message) Reaction {
	for _, r := range s.cfg.Declared.Reactions {
		if same(r.On, on) {
			return r
		}
	}
	return Reaction{On: on}
}

// compare compares the registered handlers with the declaration, in both directions.
func (s *Service) compare(all []extension.Registered) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wrong := slices.Clone(s.mistakes)
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	for _, r := range s.cfg.Declared.Reactions {
		found := slices.IndexFunc(all, func(h extension.Registered) bool {
			return h.Handled && h.Deadline == "" && h.Topic == r.On.Topic && (h.Type == r.On.Type || h.Type == "")
		})
		switch {
		case found < 0:
			say("a reaction to %s is declared and has no handler: register one, or strike it out of the declaration", name(r.On))
		case !all[found].Answers && all[found].Type != "" && len(r.Success)+len(r.Failure) > 0:
			say("the handler of %s may end without an outcome: register it with flow.On", name(r.On))
		}
	}
	for _, h := range all {
		on := Message{Topic: h.Topic, Type: h.Type}
		declared := slices.ContainsFunc(s.cfg.Declared.Reactions, func(r Reaction) bool {
			return r.On.Topic == h.Topic && (h.Type == "" || h.Type == r.On.Type)
		})
		if h.Handled && h.Deadline == "" && !declared {
			say("a handler of %s is registered and not declared: add a reaction to the declaration, or take the handler out", strings.TrimSpace(name(on)))
		}
	}
	for _, j := range s.cfg.Declared.Joins {
		if s.joins[j.Name].complete == nil {
			say("join %q is declared and has no handler: register one with flow.OnJoin, or strike it out of the declaration", j.Name)
		} else if len(j.Expired) > 0 && s.joins[j.Name].expired == nil {
			say("join %q is declared to send %s when its time is over, and no handler does: give flow.OnJoin an Expired", j.Name, name(j.Expired[0]))
		}
	}
	for _, e := range s.cfg.Declared.Expectations {
		if s.expectations[e.Name].missed == nil {
			say("expectation %q is declared and no handler raises %s: register one with flow.OnMissed, or remove it from the declaration", e.Name, name(e.Raise))
		}
	}
	for _, e := range s.cfg.Declared.Expectations {
		if len(e.Late) > 0 && s.expectations[e.Name].late == nil {
			say("expectation %q is declared to send %s when its event comes late, and no handler does: register one with flow.OnLate", e.Name, list(e.Late))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("handlers and declaration of %s differ: %w", s.cfg.Declared.Hop, errors.Join(wrong...))
}

// said counts the messages that a run has written, besides its outcome.
type said struct{ messages int }

type saidKey struct{}

// diligent runs a handler. The handler may end with Done only if it has written one of the declared messages, or if none is
// declared.
func (s *Service) diligent(ctx context.Context, what string, success, failure []Message, fn func(context.Context) (participant.Outcome, error)) (participant.Outcome, error) {
	var wrote said
	outcome, err := fn(context.WithValue(ctx, saidKey{}, &wrote))
	if err == nil && outcome == participant.Done() && wrote.messages == 0 && len(success)+len(failure) > 0 {
		declared := slices.Concat(success, failure)
		err = retry.Permanent(fmt.Errorf("%s ended without an outcome: it is declared to send %s", what, list(declared)))
	}
	return outcome, err
}

func list(ms []Message) string {
	names := make([]string, len(ms))
	for i, m := range ms {
		names[i] = name(m)
	}
	return strings.Join(names, ", or ")
}

// mayEmit refuses a message that is not declared as a consequence of the message being handled.
func (s *Service) mayEmit(ctx context.Context, m envelope.Message) error {
	of := Message{Topic: m.Topic, Type: m.Type}
	cause := envelope.CauseOf(ctx)
	if cause == nil {
		if has(s.cfg.Declared.Starts, of) {
			return nil
		}
		return retry.Permanent(fmt.Errorf("%s is not declared to start anything with %s: add it to the starts of its declaration",
			s.cfg.Declared.Hop, name(of)))
	}
	if !s.mayFollow(cause.Message, of, m.Outcome) {
		what := "a reaction"
		if m.Outcome != envelope.None {
			what = "the " + string(m.Outcome) + " of a reaction"
		}
		on := Message{Topic: cause.Message.Topic, Type: cause.Message.Type}
		return retry.Permanent(fmt.Errorf("%s is not declared to send %s as %s to %s: add it to the declaration",
			s.cfg.Declared.Hop, name(of), what, name(on)))
	}
	if wrote, ok := ctx.Value(saidKey{}).(*said); ok {
		wrote.messages++
	}
	return nil
}

// mayFollow reports whether a message may follow from cause: its reaction or a join that it completes declares the message, or
// cause is a deadline that may emit it.
func (s *Service) mayFollow(cause envelope.Message, m Message, outcome envelope.Outcome) bool {
	if deadline, is := deadlineOf(cause); is {
		if name, is := strings.CutPrefix(deadline, joinDeadline); is && s.joins[name] != nil {
			return has(s.joins[name].Expired, m)
		}
		if name, is := strings.CutPrefix(deadline, expectationDeadline); is && s.expectations[name] != nil {
			return same(s.expectations[name].Raise, m)
		}
		return has(s.cfg.Declared.Starts, m)
	}
	on := Message{Topic: cause.Topic, Type: cause.Type}
	r := s.reaction(on)
	if outcome != envelope.Failure && has(r.Success, m) || outcome != envelope.Success && has(r.Failure, m) {
		return true
	}
	if slices.ContainsFunc(s.cfg.Declared.Expectations, func(e Expectation) bool { return has(e.Expect, on) && has(e.Late, m) }) {
		return true
	}
	return slices.ContainsFunc(s.cfg.Declared.Joins, func(j Join) bool { return has(j.Await, on) && has(j.Success, m) })
}

// deadlineOf returns the name of the deadline that m is the message of.
func deadlineOf(m envelope.Message) (string, bool) {
	for _, h := range m.Extra {
		if h.Key == ce.HeaderDeadline {
			return string(h.Value[bytes.LastIndexByte(h.Value, '/')+1:]), true
		}
	}
	return "", false
}
