// Package machine says what a benchmark uses of the machine, as Linux has it in /proc. Elsewhere all of it is 0, or unknown.
package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PeakMB is the most memory that this process had resident.
func PeakMB() float64 { return Process(os.Getpid()).PeakMB() }

// Process is the number of one that runs here.
type Process int

// PeakMB is the most memory that it had resident so far.
func (p Process) PeakMB() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kb / 1024
		}
	}
	return 0
}

// CPU is its processor time, in seconds.
func (p Process) CPU() float64 { return seconds(stat(int(p)), 12, 14) }

// Load is the machine's load averages.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// Postgres is the number of the server's first process; 0 when it runs elsewhere.
type Postgres int

func PostgresOf(backend int) Postgres {
	if f := stat(backend); f != nil && strings.HasPrefix(f[0], "postgres") {
		parent, _ := strconv.Atoi(f[2])
		return Postgres(parent)
	}
	return 0
}

// CPU is the processor time of the server with all its processes, in seconds.
func (p Postgres) CPU() float64 {
	if p == 0 {
		return 0
	}
	for range 10 {
		ended := seconds(stat(int(p)), 14, 16)
		used := p.running()
		own := stat(int(p))
		if seconds(own, 14, 16) == ended { // else one that ended meanwhile is in neither
			return used + seconds(own, 12, 16)
		}
	}
	return p.running() + seconds(stat(int(p)), 12, 16)
}

// running is the time of the processes that are there, without the first.
func (p Postgres) running() (used float64) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		id, _ := strconv.Atoi(filepath.Base(dir))
		if f := stat(id); f != nil && f[2] == strconv.Itoa(int(p)) {
			used += seconds(f, 12, 14)
		}
	}
	return used
}

// seconds is the sum of fields that stat gave, of a process that may be gone.
func seconds(f []string, from, to int) (sum float64) {
	const ticks = 100 // a second, on every Linux there is
	if f == nil {
		return 0
	}
	for _, field := range f[from:to] {
		n, _ := strconv.ParseFloat(field, 64)
		sum += n / ticks
	}
	return sum
}

// stat are the fields of a process from its name on, in proc(5)'s order.
func stat(id int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), "(")
	at := strings.LastIndex(rest, ")")
	if at < 0 {
		return nil
	}
	fields := append([]string{rest[:at]}, strings.Fields(rest[at+1:])...)
	if len(fields) < 16 {
		return nil
	}
	return fields
}
