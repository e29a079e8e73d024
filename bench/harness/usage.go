package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// PeakMB returns the peak resident memory of this process.
func PeakMB() float64 { return Process(os.Getpid()).PeakMB() }

// Process is the id of a process on this machine.
type Process int

// PeakMB returns its peak resident memory so far.
func (p Process) PeakMB() float64 { return p.memory("VmHWM:") }

// memory returns a value of the process's status, in MB.
func (p Process) memory(name string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kb / 1024
		}
	}
	return 0
}

// LargestOf returns the resident memory, in MB, of the largest child process that has this argument.
func (p Process) LargestOf(argument string) (largest float64) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		id, _ := strconv.Atoi(filepath.Base(dir))
		if f := stat(id); f == nil || f[2] != strconv.Itoa(int(p)) {
			continue
		}
		arguments, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if slices.Contains(strings.Split(string(arguments), "\x00"), argument) {
			largest = max(largest, Process(id).memory("VmRSS:"))
		}
	}
	return largest
}

// CPU returns its processor time, in seconds.
func (p Process) CPU() float64 { return seconds(stat(int(p)), 12, 14) }

// Load returns the machine's load averages.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// Postgres is the process id of the postmaster; 0 if the server runs elsewhere.
type Postgres int

func PostgresOf(backend int) Postgres {
	if f := stat(backend); f != nil && strings.HasPrefix(f[0], "postgres") {
		parent, _ := strconv.Atoi(f[2])
		return Postgres(parent)
	}
	return 0
}

// CPU returns the processor time of the server with all its processes, in seconds.
func (p Postgres) CPU() float64 {
	if p == 0 {
		return 0
	}
	for range 10 {
		ended := seconds(stat(int(p)), 14, 16)
		used := p.running()
		own := stat(int(p))
		if seconds(own, 14, 16) == ended { // else a process that ended meanwhile is in neither sum
			return used + seconds(own, 12, 16)
		}
	}
	return p.running() + seconds(stat(int(p)), 12, 16)
}

// running returns the time of the running child processes.
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

// seconds returns the sum of fields from stat; 0 for a process that has ended.
func seconds(f []string, from, to int) (sum float64) {
	const ticks = 100 // per second, on every Linux
	if f == nil {
		return 0
	}
	for _, field := range f[from:to] {
		n, _ := strconv.ParseFloat(field, 64)
		sum += n / ticks
	}
	return sum
}

// stat returns the fields of a process after its name, in the order of proc(5).
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
