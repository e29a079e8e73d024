package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// result holds the results of a run.
type result struct {
	perSecond     float64
	p50, p95, p99 time.Duration
	cpu, pg       float64 // seconds a saga; 0: not known
}

func (r result) show(name string) {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }
	cpu := func(s float64) string {
		if s == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", s*1000)
	}
	line := fmt.Sprintf("%-24s %9.1f %9s %9s %9s %11s %11s", name, r.perSecond, ms(r.p50), ms(r.p95), ms(r.p99), cpu(r.cpu), cpu(r.pg))
	fmt.Println(strings.TrimRight(line, " "))
}

// percentiles sets the percentiles of the sagas' times.
func (r *result) percentiles(took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	at := func(p float64) time.Duration { return took[int(p*float64(len(took)-1))] }
	r.p50, r.p95, r.p99 = at(0.5), at(0.95), at(0.99)
}

// median returns the run with the median rate.
func median(rs []result) result {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b result) int { return cmp.Compare(a.perSecond, b.perSecond) })
	return rs[len(rs)/2]
}

// peer runs an external harness, which prints a line of JSON.
func peer(ctx context.Context, spec string) (name string, r result, err error) {
	name, command, ok := strings.Cut(spec, "=")
	if !ok {
		return "", r, fmt.Errorf("peer %q: want name=command", spec)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return name, r, fmt.Errorf("peer %s: %w", name, err)
	}
	var said struct {
		PerSecond float64 `json:"per_s"`
		P50       float64 `json:"p50_ms"`
		P99       float64 `json:"p99_ms"`
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &said); err != nil {
		return name, r, fmt.Errorf("peer %s: %w", name, err)
	}
	r.perSecond = said.PerSecond
	r.p50, r.p99 = time.Duration(said.P50*1e6), time.Duration(said.P99*1e6)
	return name, r, nil
}
