package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// result holds the results of a run.
type result struct {
	perSecond     float64
	p50, p95, p99 float64 // ms
	cpu, pg       float64 // ms a saga; 0: not known
}

var table = harness.Table[result]{Width: 24, Columns: []harness.Column[result]{
	{Head: "sagas/s", Width: 9, Decimals: 1, Figure: func(r *result) *float64 { return &r.perSecond }},
	{Head: "p50 ms", Width: 9, Decimals: 1, Figure: func(r *result) *float64 { return &r.p50 }},
	{Head: "p95 ms", Width: 9, Decimals: 1, Figure: func(r *result) *float64 { return &r.p95 }},
	{Head: "p99 ms", Width: 9, Decimals: 1, Figure: func(r *result) *float64 { return &r.p99 }},
	{Head: "cpu ms/saga", Width: 11, Decimals: 2, Figure: func(r *result) *float64 { return &r.cpu }, Optional: true},
	{Head: "pg ms/saga", Width: 11, Decimals: 2, Figure: func(r *result) *float64 { return &r.pg }, Optional: true},
}}

// percentiles sets the percentiles of the sagas' times.
func (r *result) percentiles(times []time.Duration) {
	slices.Sort(times)
	ms := func(p float64) float64 { return harness.Percentile(times, p).Seconds() * 1000 }
	r.p50, r.p95, r.p99 = ms(0.5), ms(0.95), ms(0.99)
}

// medianRun returns the run with the median rate.
func medianRun(runs []result) result {
	rate := func(r result) float64 { return r.perSecond }
	median := harness.Median(runs, rate)
	return runs[slices.IndexFunc(runs, func(r result) bool { return rate(r) == median })]
}

// runPeer runs a program to compare, which prints a line of JSON.
func runPeer(ctx context.Context, spec string) (name string, r result, err error) {
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
	var line struct {
		PerSecond float64 `json:"per_s"`
		P50       float64 `json:"p50_ms"`
		P99       float64 `json:"p99_ms"`
	}
	text := strings.TrimSpace(string(out))
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &line); err != nil {
		return name, r, fmt.Errorf("peer %s: %w", name, err)
	}
	return name, result{perSecond: line.PerSecond, p50: line.P50, p99: line.P99}, nil
}
