// Package harness has the common parts of the benchmarks: a program with flags, servers, child processes, rounds of contenders, and
// tables of results with medians. It reads the use of resources from Linux's /proc; on other systems these figures are 0.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// QuickUsage describes the flag --quick.
const QuickUsage = "everything in small, to see that it works: its figures say nothing"

// Main parses the flags and runs the benchmark until SIGINT or SIGTERM. It exits with status 1 after an error, and with 2 after an
// error of Misused. Help begins with the given text.
func Main(name, help string, run func(context.Context) error) {
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "%s\n\n", help)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := Misused("%q: want flags only", flag.Args())
	if flag.NArg() == 0 {
		err = run(ctx)
	}
	stop()
	exit(name, err)
}

func exit(name string, err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	if errors.As(err, new(misused)) {
		os.Exit(2)
	}
	os.Exit(1)
}

type misused struct{ error }

// Misused returns the error of a flag with an invalid value.
func Misused(format string, args ...any) error { return misused{fmt.Errorf(format, args...)} }

// Choose parses a comma-separated list of known names.
func Choose(flag, text string, known ...string) (names []string, err error) {
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(known, name) {
			return nil, Misused("%s: %q is none of %s", flag, name, strings.Join(known, ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

// Numbers parses a comma-separated list of numbers; for "" it keeps the default.
func Numbers(flag, text string, numbers *[]int) error {
	if text == "" {
		return nil
	}
	*numbers = nil
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return Misused("%s: %q: want whole numbers above 0 with commas between", flag, text)
		}
		*numbers = append(*numbers, n)
	}
	return nil
}

// Set replaces a size by the value of its flag, unless that is 0.
func Set[T int | float64 | time.Duration](size *T, value T) {
	if value > 0 {
		*size = value
	}
}

// A Benchmark is a measurement with a name for --only.
type Benchmark struct {
	Name    string
	Measure func(context.Context) error
}

// Names returns the names of the benchmarks.
func Names(all []Benchmark) (names []string) {
	for _, b := range all {
		names = append(names, b.Name)
	}
	return names
}

// Run runs the benchmarks with the given names, and prints the name and the duration of each.
func Run(ctx context.Context, all []Benchmark, names []string) error {
	for _, b := range all {
		if !slices.Contains(names, b.Name) {
			continue
		}
		began := time.Now()
		fmt.Printf("\n%s\n", b.Name)
		if err := b.Measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		fmt.Printf("(%s took %s, load %s)\n", b.Name, time.Since(began).Round(100*time.Millisecond), Load())
	}
	return nil
}

// Platform returns the first words of a benchmark's first line.
func Platform() string {
	return fmt.Sprintf("%s, %s/%s, %d cores", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

// Profile writes a processor profile to the file at path until stop is called; for "" it does nothing.
func Profile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}
