package personal_test

import (
	"testing"

	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
