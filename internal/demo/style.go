package demo

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// A Style says who decides what comes next.
type Style string

const (
	Orchestration Style = "orchestration" // the order service, by a saga; the zero value too
	Choreography  Style = "choreography"  // each service for itself, by events
)

// ParseStyle reads one; an empty text is Orchestration.
func ParseStyle(text string) (Style, error) {
	switch s := Style(text); s {
	case "", Orchestration:
		return Orchestration, nil
	case Choreography:
		return s, nil
	}
	return "", fmt.Errorf("%q: want %s or %s", text, Orchestration, Choreography)
}

var ofOrder = regexp.MustCompile(`"(hop|topic)": "` + defaultFlow + `\.`)

// Declared reads a service's reactions.json, which is of the flow order, for the flow of that name.
func Declared(text []byte, flow string) (reactions.Service, error) {
	return reactions.Parse(ofOrder.ReplaceAll(text, []byte(`"$1": "`+flow+`.`)))
}

// A Reaction is what a service does about an event E of another hop: what it would do about a command C, by the same handler.
type Reaction[E, C, A any] struct {
	From string // the other hop
	Asks func(E) C
	Does func(context.Context, pgx.Tx, participant.Command[C]) (participant.Outcome, error)
	// Tells adds to the success A what a coordinator knows and those who react to it in turn do not; nil: nothing.
	Tells func(e E, a *A)
}

// On has the service react.
func (r Reaction[E, C, A]) On(s *flow.Service) {
	from := topics.MustHop(s.Participant().Hop().Flow(), r.From)
	flow.On(s, from, func(ctx context.Context, tx pgx.Tx, e participant.Event[E]) (participant.Outcome, error) {
		out, err := r.Does(ctx, tx, participant.Command[C]{Body: r.Asks(e.Body), Message: e.Message, Attempt: e.Attempt})
		if a, success := out.Body().(A); success && r.Tells != nil {
			r.Tells(e.Body, &a)
			out = participant.Succeed(a)
		}
		return out, err
	})
}
