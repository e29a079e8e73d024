package keyed_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-go/troupe/internal/keyed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type config = keyed.Config[int, int]

func push(l *keyed.Lane[int, int], key uint64, numbers ...int) {
	for _, n := range numbers {
		l.Push(keyed.Item[int, int]{Value: n, Mark: n, Key: key, Size: 10})
	}
}

// TestOrderPerKeyAndTheLowMark pushes random items to several lanes, and checks every run.
func TestOrderPerKeyAndTheLowMark(t *testing.T) {
	t.Parallel()
	const items, keys, lanes, limit = 20_000, 37, 3, 8
	for n, batch := range []int{1, 7, 100, 1, 7, 100} {
		pool := keyed.NewPool(limit)
		var all sync.WaitGroup
		var running, most atomic.Int32
		for range lanes {
			var mu sync.Mutex
			last := make(map[int]int)
			ended := make([]bool, items)
			low := -1
			var doubled, reordered, passed int
			all.Add(items)
			l := keyed.NewLane(pool, config{
				Batch: batch, Spread: n > 2,
				Run: func(batch []int) (int, bool) {
					n := running.Add(1)
					for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
					}
					runtime.Gosched()
					mu.Lock()
					for _, i := range batch {
						if ended[i] {
							doubled++
						}
						if before, ok := last[i%keys]; ok && before != i-keys {
							reordered++
						}
						last[i%keys], ended[i] = i, true
					}
					mu.Unlock()
					running.Add(-1)
					return len(batch), false
				},
				Low: func(mark int) {
					mu.Lock()
					for i := low + 1; i <= mark; i++ {
						if !ended[i] {
							passed++
						}
					}
					all.Add(low - mark)
					low = mark
					mu.Unlock()
				},
			})
			l.Release()
			for i := 0; i < items; {
				var some []keyed.Item[int, int]
				for range rand.IntN(50) {
					if i < items {
						some = append(some, keyed.Item[int, int]{Value: i, Mark: i, Key: uint64(i % keys)})
						i++
					}
				}
				l.Push(some...)
			}
			t.Cleanup(func() {
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, items-1, low)
				require.Zero(t, doubled+reordered+passed)
				left, bytes := l.Load()
				require.Zero(t, left+bytes)
			})
		}
		all.Wait()
		require.LessOrEqual(t, most.Load(), int32(limit))
		require.Greater(t, most.Load(), int32(1))
	}
}

// A batch of a lane with Spread has an item of each key before it has a second item of any.
func TestASpreadBatchHasAsManyKeysAsThereAre(t *testing.T) {
	t.Parallel()
	var batches [][]int
	done := make(chan struct{})
	l := keyed.NewLane(keyed.NewPool(1), config{
		Batch: 4, Spread: true,
		Run: func(batch []int) (int, bool) {
			batches = append(batches, batch)
			return len(batch), false
		},
		Low: func(mark int) {
			if mark == 9 {
				close(done)
			}
		},
	})
	push(l, 1, 0, 1, 2, 3, 4, 5)
	push(l, 2, 6, 7, 8)
	push(l, 3, 9)
	l.Release()
	<-done
	require.Equal(t, [][]int{{0, 1, 6, 9}, {7, 8, 2, 3}, {4, 5}}, batches)
	<-l.Close()
}

// While a run is in progress, an incomplete batch waits: for the end of the run, for more items, or for Gather.
func TestLessThanABatchGathers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const gather = 20 * time.Millisecond
		pool := keyed.NewPool(4)
		var mu sync.Mutex
		var ran [][]int
		gate := make(chan struct{})
		cfg := config{Batch: 3, Gather: gather, Run: func(batch []int) (int, bool) {
			mu.Lock()
			ran = append(ran, batch)
			mu.Unlock()
			<-gate
			return len(batch), false
		}}
		l, other := keyed.NewLane(pool, cfg), keyed.NewLane(pool, cfg)
		l.Release()
		other.Release()
		went := func(what string, want ...[]int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, ran, what)
			ran = nil
		}
		push(l, 1, 0)
		went("where nothing runs, nothing waits", []int{0})
		push(l, 2, 1)
		push(l, 3, 2)
		push(other, 4, 3)
		went("less than a batch, of either lane")
		gate <- struct{}{}
		went("gathered items run together, and the items of the other lane wait", []int{1, 2})
		time.Sleep(gather - time.Nanosecond) //nolint:forbidigo // virtual time
		went("not yet")
		time.Sleep(time.Nanosecond) //nolint:forbidigo // virtual time
		went("long enough", []int{3})
		push(l, 5, 4)
		went("this waits for that one")
		time.Sleep(gather / 2) //nolint:forbidigo // virtual time
		push(l, 6, 5)
		push(l, 7, 6)
		went("a full batch waits for nothing", []int{4, 5, 6})
		push(l, 8, 7)
		for range 3 {
			gate <- struct{}{}
		}
		went("the last one begins with the end of the others", []int{7})
		gate <- struct{}{}
		<-l.Close()
		<-other.Close()
		time.Sleep(gather) //nolint:forbidigo // virtual time: until the pool has checked again
	})
}

func TestAGapKeepsTheMark(t *testing.T) {
	t.Parallel()
	gate, low := make(chan struct{}), make(chan int, 10)
	l := keyed.NewLane(keyed.NewPool(2), config{
		Run: func(batch []int) (int, bool) {
			if batch[0] == 0 {
				<-gate
			}
			return 1, false
		},
		Low: func(mark int) { low <- mark },
	})
	push(l, 1, 0)
	push(l, 2, 1, 2, 3)
	l.Release()
	for n := 4; n > 1; n, _ = l.Load() {
		runtime.Gosched()
	}
	require.Empty(t, low)
	close(gate)
	require.Equal(t, 3, <-low)
}

func TestTheSourceIsPausedAtEachBound(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]config{
		"items": {MaxItems: 4}, "bytes": {MaxBytes: 40}, "gap": {MaxGap: 4},
	} {
		var paused, resumed int
		step, low := make(chan struct{}), make(chan int, 10)
		bounds.Pause, bounds.Resume = func() { paused++ }, func() { resumed++ }
		bounds.Run = func([]int) (int, bool) { <-step; return 1, false }
		bounds.Low = func(mark int) { low <- mark }
		l := keyed.NewLane(keyed.NewPool(1), bounds)
		push(l, 1, 0, 1, 2)
		require.Zero(t, paused, name)
		push(l, 1, 3)
		require.Equal(t, 1, paused, name)
		l.Release()
		for i := range 4 {
			step <- struct{}{}
			require.Equal(t, i, <-low)
		}
		_, _ = l.Load()
		require.Equal(t, 1, resumed, name)
	}
}

// A held lane begins nothing; a closed lane finishes its runs and moves the mark, and drops the rest.
func TestHoldAndClose(t *testing.T) {
	t.Parallel()
	began, gate, low := make(chan int), make(chan struct{}), make(chan int, 10)
	l := keyed.NewLane(keyed.NewPool(4), config{
		Run: func(batch []int) (int, bool) { began <- batch[0]; <-gate; return 1, false },
		Low: func(mark int) { low <- mark },
	})
	push(l, 1, 0, 1)
	push(l, 2, 2)
	l.PushAside(3, 99)
	l.Release()
	require.ElementsMatch(t, []int{0, 2, 99}, []int{<-began, <-began, <-began})
	l.Hold()
	idle := l.Close()
	push(l, 4, 3)
	close(gate)
	<-idle
	require.Equal(t, 0, <-low)
	require.Empty(t, low)
	<-l.Close()
}

// Items that a run leaves close the lane: neither they nor later items are run again.
func TestARunThatLeavesSomethingClosesTheLane(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func() int{
		"returns": func() int { return 1 },
		"ends its goroutine": func() int {
			runtime.Goexit()
			return 2
		},
	} {
		pool := keyed.NewPool(1)
		low := make(chan int, 10)
		l := keyed.NewLane(pool, config{Batch: 2, Run: func([]int) (int, bool) { return leave(), false }, Low: func(mark int) { low <- mark }})
		push(l, 1, 0, 1, 2)
		l.Release()
		for n := 3; n > 1; n, _ = l.Load() {
			runtime.Gosched()
		}
		<-l.Close()
		if name == "returns" {
			require.Equal(t, 0, <-low)
		}
		require.Empty(t, low)
		other := keyed.NewLane(pool, config{Run: func([]int) (int, bool) { return 1, false }, Low: func(mark int) { low <- mark }})
		push(other, 1, 7)
		other.Release()
		require.Equal(t, 7, <-low, "the pool goes on")
	}
}

// Items that are given back run again at their position, before later items; while the lane is held, only one run tries.
func TestAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	away := true
	var ran [][]int
	again, low := make(chan struct{}, 100), make(chan int, 10)
	var l *keyed.Lane[int, int]
	l = keyed.NewLane(keyed.NewPool(4), config{
		Batch: 3,
		Run: func(batch []int) (int, bool) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, batch)
			if away {
				l.Hold()
				again <- struct{}{}
				return 1, true
			}
			return len(batch), false
		},
		Low: func(mark int) { low <- mark },
	})
	push(l, 1, 0, 1)
	push(l, 2, 2, 3)
	l.Release()
	<-again
	push(l, 3, 4) // not before the lane is held: a second run might begin with it
	require.Equal(t, 0, <-low)
	l.Try()
	<-again
	require.Equal(t, 1, <-low)
	mu.Lock()
	away = false
	mu.Unlock()
	l.Release()
	for mark := 1; mark < 4; mark = <-low {
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []int{0, 1, 2}, ran[0])
	require.Equal(t, []int{1, 2, 3}, ran[1], "returned items come first")
	n, bytes := l.Load()
	require.Zero(t, n+bytes)
}

// A key whose first item is not admitted waits until Unpark, with its later items and without a place in the pool; others run. An item
// that is the last of its run is in no run with later ones.
func TestAKeyWaitsUntilItIsUnparked(t *testing.T) {
	t.Parallel()
	for name, spread := range map[string]bool{"in order": false, "spread": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var permits atomic.Int32
			ran, low := make(chan []int, 100), make(chan int, 100)
			l := keyed.NewLane(keyed.NewPool(1), config{
				Batch: 10, Spread: spread,
				Run: func(batch []int) (int, bool) { ran <- batch; return len(batch), false },
				Low: func(mark int) { low <- mark },
				Admit: func(item int, _ keyed.Place) (any, bool) {
					switch {
					case item >= 100:
						return nil, true
					case item >= 10 || permits.Add(-1) >= 0:
						return nil, false
					}
					permits.Add(1)
					return "a permit", false
				},
			})
			permits.Store(1)
			push(l, 1, 0, 1, 2)
			push(l, 2, 10)
			push(l, 3, 3)
			push(l, 4, 100)
			push(l, 5, 101)
			l.Release()
			first := <-ran
			require.Subset(t, first, []int{0, 10, 100})
			require.NotContains(t, first, 1)
			require.NotContains(t, first, 3)
			require.NotContains(t, first, 101)
			require.Equal(t, []int{101}, <-ran)
			for l.Parked("a permit") < 2 {
				runtime.Gosched()
			}
			s := l.State()
			require.Equal(t, 2, s.Parked)
			require.Equal(t, 3, s.Waiting)
			require.False(t, s.Since.IsZero())
			require.Zero(t, l.Unpark("another reason", 9))

			permits.Store(2)
			require.Equal(t, 1, l.Unpark("a permit", 1), "the first that waited, alone")
			require.Equal(t, []int{3}, <-ran)
			require.Equal(t, 1, l.Unpark("a permit", 9))
			require.Equal(t, []int{1}, <-ran)
			for l.Parked("a permit") < 1 {
				runtime.Gosched()
			}
			l.Hold()
			l.Try()
			permits.Store(1)
			require.Equal(t, 1, l.Unpark("a permit", 9), "a try of a lane that is held waits for the permit")
			require.Equal(t, []int{2}, <-ran)
			require.Zero(t, l.Parked("a permit"))

			l.Release()
			push(l, 1, 4)
			for l.Parked("a permit") < 1 {
				runtime.Gosched()
			}
			l.Hold()
			permits.Store(1)
			require.Zero(t, l.Unpark("a permit", 9), "a lane that is held leaves the permit to others")
			require.Zero(t, l.Parked("a permit"))
			l.Release()
			require.Equal(t, []int{4}, <-ran)
			<-l.Close()
		})
	}
}

// An item that is not admitted behind another of its key, or to a run with items of other keys, is in a later run, in its key's order.
func TestAnItemWaitsForTheNextRun(t *testing.T) {
	t.Parallel()
	for name, spread := range map[string]bool{"in order": false, "spread": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ran := make(chan []int, 100)
			l := keyed.NewLane(keyed.NewPool(1), config{
				Batch: 10, Spread: spread,
				Run: func(batch []int) (int, bool) { ran <- batch; return len(batch), false },
				Admit: func(item int, place keyed.Place) (any, bool) {
					switch {
					case item >= 100 && place != keyed.First, item < 10 && place == keyed.Behind:
						return keyed.NextRun, false
					}
					return nil, item >= 100
				},
			})
			push(l, 1, 0, 1, 10)
			push(l, 2, 11, 12)
			push(l, 3, 100, 13)
			push(l, 4, 2)
			l.Release()
			first := <-ran
			require.Subset(t, first, []int{0, 11})
			require.Equal(t, []int{100}, <-ran)
			all := append(first, <-ran...)
			require.ElementsMatch(t, []int{0, 1, 2, 10, 11, 12, 13}, all)
			for _, in := range [][]int{{0, 1}, {1, 10}, {11, 12}} {
				require.Less(t, slices.Index(all, in[0]), slices.Index(all, in[1]))
			}
			<-l.Close()
		})
	}
}
