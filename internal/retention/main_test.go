package retention_test

import (
	"testing"

	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) {
	short.Only(
		"ExampleDropper_Drop", "TestPartitionsThatAreDoneAreDropped", "TestClosedDeadLettersAreRemoved", "TestEndedSagasAreRemovedWithTheirLogs",
	)
	testkit.Main(m)
}
