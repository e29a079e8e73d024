package run

import (
	"testing"

	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) {
	short.Only(
		"TestEveryCheckFindsWhatItIsFor", "TestOrdersArePostedUntilTheyAreTaken", "TestAResultIsCountedAndMeasured",
		"TestTheJSONHasWhatIsPromised",
	)
	testkit.Main(m)
}
