package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

func TestAnActorsNameIsTextOfOneLine(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ann\r\nbob", "ann\x1b[2J", "ann\u202ebob"} {
		e := saga.Event{Kind: saga.ActRetry, Actor: name, Reason: "r"}
		_, byDesk := new(sagadesk.Desk).Act(t.Context(), "order/o-1", e)
		_, byCoordinator := new(coordinator.Coordinator).Act(t.Context(), nil, "order/o-1", e)
		for _, err := range []error{byDesk, byCoordinator} {
			require.ErrorIs(t, err, coordinator.ErrRefused)
			require.ErrorContains(t, err, "actor: the name has a line break")
		}
	}
}
