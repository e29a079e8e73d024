package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// A meter is a run's clock. It may be used concurrently.
type meter struct {
	task task
	done func()

	mu           sync.Mutex
	counted      int
	transactions float64
	began        time.Time
	tenth        time.Time // when the last one ended
	before       usage
	endProfile   func()
	result       result
}

// usage is the process's use of resources so far.
type usage struct {
	cpu, mallocs, bytes float64
}

func used() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{harness.CPU(), float64(m.Mallocs), float64(m.TotalAlloc)}
}

// start starts the clock, if it does not run yet.
func (m *meter) start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startLocked()
}

func (m *meter) startLocked() {
	if !m.began.IsZero() {
		return
	}
	fmt.Println("began")
	var err error
	if m.endProfile, err = harness.Profile(m.task.Profile); err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
	}
	m.before, m.began = used(), time.Now()
	m.tenth = m.began
}

// count records that n more messages have taken effect, in a transaction of that many messages (of).
func (m *meter) count(n, of int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transactions += float64(n) / float64(of)
	before := m.counted - m.task.Skip
	m.counted += n
	after := m.counted - m.task.Skip
	if m.task.Offsets || after < 0 {
		return
	}
	m.startLocked()
	if step := m.task.Messages / 10; step > 0 && max(before, 0)/step != after/step && len(m.result.Tenths) < 10 && after > 0 {
		now := time.Now()
		m.result.Tenths = append(m.result.Tenths, now.Sub(m.tenth).Seconds())
		m.tenth = now
	}
	if before < m.task.Messages && after >= m.task.Messages {
		m.stop()
	}
}

// reached records the sum of the committed offsets of all partitions.
func (m *meter) reached(offsets int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.task.Offsets && offsets >= int64(m.task.Messages) && m.result.Messages == 0 {
		m.startLocked()
		m.stop()
	}
}

func (m *meter) stop() {
	took, after := time.Since(m.began), used()
	if m.endProfile != nil {
		m.endProfile()
	}
	if m.task.Profile != "" {
		if file, err := os.Create(m.task.Profile + ".allocs"); err == nil {
			_ = pprof.Lookup("allocs").WriteTo(file, 0)
			_ = file.Close()
		}
	}
	m.result.Messages, m.result.Seconds = m.task.Messages, took.Seconds()
	m.result.CPU = after.cpu - m.before.cpu
	m.result.Mallocs, m.result.Bytes = after.mallocs-m.before.mallocs, after.bytes-m.before.bytes
	if m.transactions > 0 {
		m.result.Batch = float64(m.counted) / m.transactions
	}
	m.result.PeakMB = harness.PeakMB()
	m.done()
}

func (m *meter) print() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(m.result)
}
