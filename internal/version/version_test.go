package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheVersionOfALinkerWinsOverTheRecordedOne(t *testing.T) {
	t.Parallel()
	recorded := &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	require.Equal(t, "(devel)", read(nil, "").Version)
	require.Equal(t, "v0.2.0", read(recorded, "").Version)
	b := read(recorded, "v0.3.0")
	require.Equal(t, "v0.3.0", b.Version)
	require.Equal(t, "0123456789ab+", b.Revision)
	require.Contains(t, b.String(), "v0.3.0 0123456789ab+ (go")
}
