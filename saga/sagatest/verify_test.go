package sagatest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// recorder records the errors of a test.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func TestVerifyFailsForFindingsInOneDefinitionAndInAllTogether(t *testing.T) {
	t.Parallel()
	define := func(timeout string) *saga.Definition {
		d, err := saga.Parse([]byte(`{"saga": "order", "version": 1, "key": "order_id", "data": {"order_id": "string"}` + timeout + `,
			"steps": [{"name": "notice", "command": {"hop": "mail", "type": "SendNotice", "input": {"order_id": "data.order_id"}},
				"success": [{"event": "NoticeSent"}], "retriable": true, "irreversible": "a notice cannot be unsent"}]}`))
		require.NoError(t, err)
		return d
	}
	var r recorder
	waits, ends := define(""), define(`, "timeout": "1h"`)
	sagatest.Verify(&r, waits, ends)
	require.Len(t, r.said, 2)
	require.Contains(t, r.said[0], "saga order v1: warning: no-timeout: ")
	require.Contains(t, r.said[1], "error: same-version: ")
	sagatest.Verify(t, ends)
}
