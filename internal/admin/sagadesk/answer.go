package sagadesk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/saga"
)

// withAnswerer adds to the refusal of an operator's answer the name of the operator who answered the step before, if there is one.
func (d *Desk) withAnswerer(ctx context.Context, id string, e saga.Event, refused error) error {
	const find = `
SELECT at, left(actor, 200), left(event ->> 'type', 200)
FROM troupe.saga_events
WHERE saga_id = $1
  AND kind = 'answer'
  AND event ->> 'step' = $2
ORDER BY version DESC
LIMIT 1`
	if e.Kind != saga.ActAnswer || !errors.Is(refused, decisions.ErrRefused) {
		return refused
	}
	var at time.Time
	var actor, event string
	switch err := d.cfg.Pool.QueryRow(ctx, find, id, e.Step).Scan(&at, &actor, &event); {
	case errors.Is(err, pgx.ErrNoRows):
		return refused
	case err != nil:
		return errors.Join(refused, explain(err))
	}
	return fmt.Errorf("%w; %s answered it with %s at %s", refused, plain.Line(actor, 100), event, at.UTC().Format(time.DateTime+"Z"))
}

// ReadFormValues converts the texts of a form's fields to the fields' types. It leaves out empty texts. It does not check the
// fields' limits: the decision does.
func ReadFormValues(f FormEvent, texts map[string]string) (map[string]any, error) {
	values := make(map[string]any, len(texts))
	for name, text := range texts {
		i := slices.IndexFunc(f.Fields, func(one saga.Field) bool { return one.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s: the form of %s has no such field", plain.Line(name, 60), f.Event)
		}
		if text == "" {
			continue
		}
		v, err := readFormValue(f.Fields[i].Type, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values[name] = v
	}
	return values, nil
}

func readFormValue(t saga.Type, text string) (v any, err error) {
	switch t {
	case saga.String:
		return text, nil
	case saga.Bool:
		v, err = strconv.ParseBool(text)
	case saga.Int:
		v, err = strconv.ParseInt(text, 10, 64)
	default:
		v, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("want a value of type %s", t)
	}
	return v, nil
}

// Given returns the event and the values of an operator's answer as JSON on one line of at most 300 characters; "" for another
// event. It hides the values of personal fields, and of fields that d does not declare, for example after a move to another
// definition.
func Given(d *saga.Definition, e saga.Event) string {
	if e.Kind != saga.ActAnswer {
		return ""
	}
	text, _ := json.Marshal(shownValues(d, e)) // cannot fail: strings, numbers and bools
	return plain.Line(e.Type+" "+string(text), 299)
}

// shownValues returns the fields of an answer, with a note instead of each hidden value.
func shownValues(d *saga.Definition, e saga.Event) map[string]any {
	shown := make(map[string]any, len(e.Fields))
	for name, v := range e.Fields {
		shown[name] = "(not shown)"
		for _, f := range FormEvents(d, e.Step) {
			if f.Event != e.Type {
				continue
			}
			for _, one := range f.Fields {
				if one.Name == name && !one.Personal {
					shown[name] = v
				}
			}
		}
	}
	return shown
}
