package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestATopicThatABrokerDoesNotKnowIsNotTakenForANewOne checks that a member joins again if a broker does not know the topic of a partition that
// was assigned, as one that has just started. Taken for a new topic, the partition would lose its watermark, and would be read from its start.
func TestATopicThatABrokerDoesNotKnowIsNotTakenForANewOne(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	require.NoError(t, participant.FetchedOffset(t.Context(), s.client, s.hop.Commands()))
	require.ErrorContains(t, participant.FetchedOffset(t.Context(), s.client, s.hop.Commands()+".unknown"), "does not know the topic")
}
