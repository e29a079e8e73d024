package harness

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPercentileIsTheSmallestThatThePartDoesNotExceed(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, c := range []struct {
		of   []int
		p    float64
		want int
	}{
		{nil, 0.5, 0},
		{[]int{7}, 0, 7}, {[]int{7}, 0.5, 7}, {[]int{7}, 0.999, 7},
		{[]int{1, 2}, 0.5, 1}, {[]int{1, 2, 3}, 0.5, 2}, {[]int{1, 2, 3}, 0.99, 3},
		{hundred, 0.5, 50}, {hundred, 0.95, 95}, {hundred, 0.99, 99}, {hundred, 0.999, 100}, {hundred, 1, 100},
	} {
		require.Equal(t, c.want, Percentile(c.of, c.p), "%v of %d", c.p, len(c.of))
	}
}

func TestNumbersOfAFlag(t *testing.T) {
	got := []int{1}
	require.NoError(t, Numbers("--backlogs", "", &got))
	require.Equal(t, []int{1}, got)
	require.NoError(t, Numbers("--backlogs", "20,300", &got))
	require.Equal(t, []int{20, 300}, got)
	for _, bad := range []string{"x", "1,", "0", "-1"} {
		require.ErrorContains(t, Numbers("--backlogs", bad, &got), "--backlogs")
	}
}
