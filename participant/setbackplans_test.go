package participant_test

import "testing"

// TestALogWhoseGroupOffsetWasNotSetBackIsReadAgain: an unclean election of a leader, or the loss of a disk, sets a log back, but not the group's offset. New
// messages have come before the next owner asks for the end of the log.
func TestALogWhoseGroupOffsetWasNotSetBackIsReadAgain(t *testing.T) {
	t.Parallel()
	lost := []setBackStep{
		{Kind: stepJoin}, {Kind: stepCopy}, {Kind: stepSend, N: 8, Type: "Paid"}, {Kind: stepSettle}, {Kind: stepClose},
		{Kind: stepTear}, {Kind: stepSend, N: 3, Type: "Paid"}, {Kind: stepSend, N: 2, Type: "Refunded"},
	}
	for name, plan := range map[string]setBackPlan{
		"by the next owner":       {},
		"during a rebuild":        {Steps: []setBackStep{{Kind: stepRebuild}}},
		"an inbox without an end": {Forever: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan.Partitions, plan.Batch, plan.Steps = 1, 1, append(lost[:len(lost):len(lost)], plan.Steps...)
			newSetBackHistory(t, plan).run()
		})
	}
}
