package run

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	liveEvery  = 250 * time.Millisecond
	plainEvery = 5 * time.Second
)

// progress prints the progress of a run: on a terminal one line that is overwritten, elsewhere a line at intervals.
type progress struct {
	w     io.Writer
	width int // of the terminal; 0: none

	mu    sync.Mutex
	line  bool // a live line is displayed
	shown time.Time
	last  []sample // of the last seconds, for the rate
}

type sample struct {
	at    time.Time
	ended int64
}

// print writes a line that stays.
func (p *progress) print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

// wipe removes the live line.
func (p *progress) wipe() {
	if p.line {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
		p.line = false
	}
}

// showCounts prints how many orders are in which status.
func (p *progress) showCounts(posted, of int, c counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	rate := p.rate(now, c.ended())
	every := plainEvery
	if p.width > 0 {
		every = liveEvery
	}
	if p.shown.IsZero() {
		p.shown = now
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	line := fmt.Sprintf("%s of %s posted · %s in flight · %s completed · %s compensated · %s parked · %s/s",
		grouped(posted), grouped(of), grouped(int(c.Running)), grouped(int(c.Completed)), grouped(int(c.Compensated)),
		grouped(int(c.Parked)), grouped(int(rate)))
	if p.width > 0 {
		if runes := []rune(line); len(runes) >= p.width { // a line that wraps cannot be overwritten
			line = string(runes[:p.width-1])
		}
		_, _ = io.WriteString(p.w, "\r\x1b[K"+line)
		p.line = true
		return
	}
	_, _ = io.WriteString(p.w, line+"\n")
}

// rate returns the ended orders per second over the last three seconds.
func (p *progress) rate(now time.Time, ended int64) float64 {
	p.last = append(p.last, sample{now, ended})
	for len(p.last) > 2 && now.Sub(p.last[0].at) > 3*time.Second {
		p.last = p.last[1:]
	}
	first := p.last[0]
	if first.at.Equal(now) {
		return 0
	}
	return float64(ended-first.ended) / now.Sub(first.at).Seconds()
}

// done removes the live line at the end.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
}

// grouped formats 6919 as 6,919.
func grouped(n int) string {
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
