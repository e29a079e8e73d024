package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestAParticipantWorksWhileAnotherProgramPublishesAllTables: Debezium, for one, makes such a publication by default. From then on Postgres
// refuses each delete from a table without a replica identity, and the watermark and the offset of the group stayed where they were.
func TestAParticipantWorksWhileAnotherProgramPublishesAllTables(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.pool.Exec(t.Context(), "CREATE PUBLICATION theirs FOR ALL TABLES")
	require.NoError(t, err)
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.provision(1)
	s.send(s.commands(1, 5)...)
	stop := s.start(p)
	s.expectAll(1, 5)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE watermark = 4")
	testkit.Wait(t, "the group's offset", func() (bool, error) { return s.committed(0) == 5, nil })
	require.NoError(t, p.Ready())
	stop()
}
