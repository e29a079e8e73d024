package demo

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// A Style selects orchestration or choreography.
type Style string

const (
	Orchestration Style = "orchestration" // the order service decides, by a saga; also the zero value
	Choreography  Style = "choreography"  // each service decides for itself, by events
)

// ParseStyle parses a style; an empty text is Orchestration.
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

// Declared parses a service's reactions.json, which is written for the flow order, for the flow of that name.
func Declared(text []byte, of string) (flow.Declaration, error) {
	return flow.Parse(ofOrder.ReplaceAll(text, []byte(`"$1": "`+of+`.`)))
}

// A Reaction handles an event E of another hop by the handler of a command C.
type Reaction[E, C, A any] struct {
	From    string // the other hop
	Command func(E) C
	Handle  func(context.Context, pgx.Tx, participant.Command[C]) (participant.Outcome, error)
	// Complete adds to the success A the facts that a coordinator would know and the services that react to A do not; nil: none.
	Complete func(e E, a *A)
}

// On registers the reaction.
func (r Reaction[E, C, A]) On(s *flow.Service) {
	from := topics.MustHop(s.Participant().Hop().Flow(), r.From)
	flow.On(s, from, func(ctx context.Context, tx pgx.Tx, e participant.Event[E]) (participant.Outcome, error) {
		out, err := r.Handle(ctx, tx, participant.Command[C]{Body: r.Command(e.Body), Message: e.Message, Attempt: e.Attempt})
		if a, success := out.Body().(A); success && r.Complete != nil {
			r.Complete(e.Body, &a)
			out = participant.Succeed(a)
		}
		return out, err
	})
}
