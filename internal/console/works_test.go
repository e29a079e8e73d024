package console

import (
	"context"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestARunningJobIsNotForgotten: when too many works are kept, the one removed is the oldest that has ended, even if a
// running one is older.
func TestARunningJobIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWorks()
	defer w.close()
	long := &Work{Do: "redrive", kind: redriveWork}
	require.NoError(t, w.begin(long, func(ctx context.Context, _ func(func(*Work))) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	for n := range keptWorks + 3 {
		ended := make(chan struct{})
		one := &Work{Do: strconv.Itoa(n), kind: redriveWork}
		require.NoError(t, w.begin(one, func(context.Context, func(func(*Work))) error { close(ended); return nil }))
		<-ended
		testkit.Wait(t, "its end", func() (bool, error) { // which is written after that
			now, err := w.find(one.ID)
			return now.Ended != nil, err
		})
	}
	_, err := w.find(long.ID)
	require.NoError(t, err)
	require.Len(t, w.list(), keptWorks)
	w.close()
	now, err := w.find(long.ID)
	require.NoError(t, err)
	require.Equal(t, "it was stopped: the same again goes on with the rest", now.Error)
}

// TestALinkToAnActionOfAnEarlierConsoleSaysWhereItsRecordIs opens the progress page of an action that is not in the memory of this console.
func TestALinkToAnActionOfAnEarlierConsoleSaysWhereItsRecordIs(t *testing.T) {
	t.Parallel()
	w := newDesk(t).get("/work?id=gone")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), "the console has restarted since: the page Actions has its records, and the same action again continues with the rest")
}
