package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// journey skips its last step if the step parallel to its first is refused.
const journey = `{"saga":"journey","version":1,"key":"id","data":{"id":"string"},
 "steps":[
  {"name":"hotel","command":{"hop":"hotel","type":"Book"},"success":[{"event":"Booked"}],"timeout":"1h",
   "compensation":{"command":{"hop":"hotel","type":"Cancel"},"success":[{"event":"Cancelled"}],"timeout":"1h"}},
  {"name":"insurance","command":{"hop":"insurance","type":"Insure"},"success":[{"event":"Insured"}],"failure":[{"event":"Refused"}],"timeout":"1h","irreversible":"cheap"},
  {"name":"car","needs":["hotel"],"command":{"hop":"car","type":"Rent"},"success":[{"event":"Rented"}],"timeout":"1h",
   "compensation":{"command":{"hop":"car","type":"Return"},"success":[{"event":"Returned"}],"timeout":"1h"}}]}`

// TestNoEffectOfALostDecisionIsLeftBehind sets a saga's database back to before it sent a command, and lets the saga skip that
// command's step: a refusal is read before the answer that led to the command. The command's answer comes before the saga has ended,
// or later.
func TestNoEffectOfALostDecisionIsLeftBehind(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"before the end": false, "behind the end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			f.c = f.coordinator(parsed(t, journey))
			id := f.begun("journey", map[string]any{"id": "o-1"})
			f.answer(id, "insurance", "Refused", "insurance", "forward", "failure")
			f.answer(id, "hotel", "Booked", "hotel", "forward", "success")
			const sent = "SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND type = $2"
			status := func(want string) {
				t.Helper()
				f.waitCount("the saga to be "+want, 1, "SELECT count(*) FROM troupe.sagas WHERE id = $1 AND status = $2", id, want)
			}
			f.waitCount("the hotel to be cancelled", 1, sent, f.name+".hotel.commands", "Cancel")
			if late {
				f.answer(id, "hotel", "Cancelled", "hotel", "compensate", "success")
				status("compensated")
			}
			f.answer(id, "car", "Rented", "car", "forward", "success")
			if late {
				const letter = "SELECT count(*) FROM troupe.dead_letters WHERE message_type = 'Rented' AND error LIKE '%step car took effect%'"
				f.waitCount("a dead letter", 1, letter)
				return
			}
			f.waitCount("the car to be returned", 1, sent, f.name+".car.commands", "Return")
			f.answer(id, "hotel", "Cancelled", "hotel", "compensate", "success")
			f.answer(id, "car", "Returned", "car", "compensate", "success")
			status("compensated")
			require.Zero(t, f.count("SELECT count(*) FROM troupe.dead_letters"))
		})
	}
}
