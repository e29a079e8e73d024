package participanttest

import (
	"testing"

	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/internal/flow/verify"
)

// VerifyFlow fails a test for each finding of the services of a flow without an orchestrator, warnings included. It checks their
// declarations as the command `troupe flow verify` does, starts nothing, and needs no Stage.
func VerifyFlow(t testing.TB, services ...reactions.Service) {
	t.Helper()
	for _, f := range verify.Flow(services) {
		t.Errorf("%s", f)
	}
}
