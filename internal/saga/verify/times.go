package verify

import (
	"time"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// timeOuts compares time-outs with the times that retries and steps may take.
func timeOuts(m *model) {
	for _, n := range m.steps {
		m.outlasted(n.path, n.Name, n.Timeout, n.Retry)
		if c := n.Compensation; c != nil {
			m.outlasted(n.path+".compensation", "the compensation of "+n.Name, c.Timeout, c.Retry)
		}
	}
	if m.s.Timeout == 0 {
		return
	}
	for _, c := range m.runs {
		if longest, at := m.critical(c); longest > time.Duration(m.s.Timeout) {
			m.report("saga-timeout-below-steps", "timeout", m.trace(c, at, "done"),
				"%s, and the time-outs of the steps up to %s add up to %s; allow at least that", m.s.Timeout, m.steps[at].Name, saga.Duration(longest))
			return
		}
	}
}

func (m *model) outlasted(path, name string, timeout saga.Duration, r *saga.Retry) {
	if timeout == 0 || r == nil {
		return
	}
	if longest := longestOf(r); longest > time.Duration(timeout) {
		m.report("timeout-below-retries", path+".timeout", nil,
			"%s has %s, and its %d tries of %s with their waits may take %s; allow at least that, or try less",
			name, timeout, r.Attempts, r.Try, saga.Duration(longest))
	}
}

// longestOf returns the duration of all attempts and all waits between them.
func longestOf(r *saga.Retry) time.Duration {
	p := retry.Policy{Attempts: r.Attempts, Initial: time.Duration(r.Initial), Cap: time.Duration(r.Cap)}
	return time.Duration(r.Attempts)*time.Duration(r.Try) + p.Longest()
}

// critical returns how long the steps of a run may take if each one takes all its time, and the step that is done last. A step
// without a time-out takes as long as its retries.
func (m *model) critical(c *run) (longest time.Duration, at int) {
	ends := make([]time.Duration, len(m.steps))
	for _, i := range m.order {
		if !c.begun.has(i) {
			continue
		}
		n := m.steps[i]
		first := true
		for _, k := range n.needs {
			switch {
			case !c.begun.has(k):
			case first:
				ends[i], first = ends[k], false
			case n.Join == saga.First:
				ends[i] = min(ends[i], ends[k])
			default:
				ends[i] = max(ends[i], ends[k])
			}
		}
		if n.Timeout > 0 {
			ends[i] += time.Duration(n.Timeout) * n.times()
		} else if n.Retry != nil && n.sends {
			ends[i] += longestOf(n.Retry) * n.times()
		}
		if ends[i] >= longest {
			longest, at = ends[i], i
		}
	}
	return longest, at
}
