package explore_test

import (
	"os"
	"testing"

	"github.com/troupe-go/troupe/internal/short"
)

func TestMain(m *testing.M) {
	short.Only("ExampleExplore", "TestACounterexampleIsMinimal", "TestWrongBoundsAreRefused", "TestThePlantedMistakesThatAreFound")
	os.Exit(m.Run())
}
