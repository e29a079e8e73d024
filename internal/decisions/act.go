package decisions

import (
	"context"
	"fmt"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/moments"
	"github.com/troupe-go/troupe/saga"
)

// CheckActor returns an error that wraps ErrRefused if e, an operator's action, has no actor or no reason.
func CheckActor(e saga.Event) error {
	if err := (admin.Actor{Name: e.Actor, Reason: e.Reason}).CheckReasoned(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

// act applies an operator's action to a saga.
func (p *pass) act(ctx context.Context, id string, e saga.Event) (saga.Effects, error) {
	if !e.Kind.Action() {
		return saga.Effects{}, fmt.Errorf("%w: %q is no action", ErrRefused, e.Kind)
	}
	if err := p.load(ctx, []string{id}); err != nil {
		return saga.Effects{}, err
	}
	if p.sagas[id].d == nil {
		return saga.Effects{}, fmt.Errorf("%w: there is no saga %s", ErrRefused, id)
	}
	fx := p.decide(-1, id, e)
	if fx.Refused != "" {
		return fx, fmt.Errorf("saga %s: %w: %s", id, ErrRefused, fx.Refused)
	}
	return fx, p.unstash(ctx, -1, id)
}

// An Obstacle is an error about one saga. A caller that acts on several sagas reports it, and goes on with the next saga.
type Obstacle struct{ error }

// NewObstacle returns an Obstacle whose text is formatted as by fmt.Errorf.
func NewObstacle(format string, args ...any) Obstacle { return Obstacle{fmt.Errorf(format, args...)} }

// move moves a saga to the definition to. The saga then takes the stashed events that it awaits by this definition.
func (p *pass) move(ctx context.Context, id string, to *saga.Definition, e saga.Event) error {
	if err := p.load(ctx, []string{id}); err != nil {
		return err
	}
	l := p.sagas[id]
	s, err := saga.Migrate(l.d, to, l.state)
	if err != nil {
		return Obstacle{err}
	}
	l.entries = append(l.entries, Entry{
		Version: s.Version, At: p.now, Event: e, Moments: []saga.Moment{{What: moments.SagaMigrated, Why: "to " + to.String()}},
	})
	l.d, l.state, l.searched, l.moved = to, s, nil, true
	return p.unstash(ctx, -1, id)
}
