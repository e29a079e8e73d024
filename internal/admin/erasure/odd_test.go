package erasure_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOddJSONOfAServiceStopsNoErasure: the role of a coordinator, or of an operator of sagas, may write any JSON.
func TestOddJSONOfAServiceStopsNoErasure(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, odd := range []string{
		`1`, `"SECRET"`, `["SECRET"]`, `{"lists": "SECRET"}`, `{"lists": {"seat": "SECRET"}}`, `{"lists": ["SECRET"], "data": ["SECRET"]}`,
		`["erased", "SECRET"]`, `{"erased": 1, "data": {"a": "SECRET"}}`, `{"erased": 1, "note": "SECRET"}`,
	} {
		s.exec(`INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, ended_at)
			VALUES ('order/o-1', 'order', 'o-1', 'shop.order', 'shop.order', 'd', 1, 'completed', '', $1, now(), now())`, odd)
		s.exec("INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments) VALUES ('order/o-1', 1, now(), 'started', $1, $1)", odd)
		s.exec("SELECT count(*) FROM troupe.saga_log")
		_, err := s.desk.Erase(t.Context(), "o-1", ann)
		require.NoError(t, err, odd)
		require.Empty(t, s.rowsWith("SECRET"), odd)
		s.exec("DELETE FROM troupe.saga_events")
		s.exec("DELETE FROM troupe.sagas")
	}
}
