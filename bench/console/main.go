// Command console measures how fast the console answers with large databases.
//
//	go run -C bench ./console
//	go run -C bench ./console --sagas 100000 --times 50 --within 50ms
//
// It fills the databases of four services, and one of a watcher, on a server of its own: by default 1,000,000 sagas that started
// over 30 days, 10,000 open dead letters of 40 causes, 2,000 keys that are held, 20,000 rows to publish, and 1,000,000 messages
// of choreographed flows. Then it requests each page over HTTP, like a browser and one after the other, and prints how long the
// responses took, to their last byte. It queries no broker: the time of the page Messages depends on the brokers. A page that
// answers with an error ends the measurement with status 1, and so does one whose p95 is above --within.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/troupe-go/troupe/bench/machine"
)

// sizes holds the sizes of a run.
type sizes struct {
	sagas, letters, held, rows, messages int
	times                                int // requests for each page
	within                               time.Duration
}

var (
	full  = sizes{sagas: 1_000_000, letters: 10_000, held: 2_000, rows: 20_000, messages: 1_000_000, times: 100}
	quick = sizes{sagas: 5_000, letters: 500, held: 100, rows: 500, messages: 5_000, times: 3}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	small := flag.Bool("quick", false, "everything in small, to see that it works: its figures say nothing")
	sagas := flag.Int("sagas", 0, "`sagas` that there are (default 1,000,000)")
	times := flag.Int("times", 0, "how many `times` each page is asked (default 100)")
	within := flag.Duration("within", 0, "`time` in which 95 of 100 answers of each page must be there (default: any)")
	flag.Parse()
	size := full
	if *small {
		size = quick
	}
	if *sagas > 0 {
		size.sagas = *sagas
	}
	if *times > 0 {
		size.times = *times
	}
	size.within = *within
	if err := run(ctx, size); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, size sizes) (err error) {
	s, err := open(ctx, size)
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s, %s/%s, %d cores, load %s, Postgres %s; %d sagas, %d dead letters, %d held keys, %d messages of flows; each page %d times\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), machine.Load(), s.version, size.sagas, size.letters, size.held,
		size.messages, size.times)
	pages, err := s.pages(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%-44s %8s %8s %8s %8s %8s\n", "", "min ms", "p50 ms", "p95 ms", "max ms", "KiB")
	var slow []error
	for _, p := range pages {
		took := make([]time.Duration, 0, size.times)
		bytes := 0
		for i := range size.times + 3 { // the first few open connections
			begun := time.Now()
			if bytes, err = s.get(ctx, p.address); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if i >= 3 {
				took = append(took, time.Since(begun))
			}
		}
		slices.Sort(took)
		p95 := took[len(took)*95/100]
		fmt.Printf("%-44s %8.1f %8.1f %8.1f %8.1f %8.1f\n", p.name, ms(took[0]), ms(took[len(took)/2]), ms(p95), ms(took[len(took)-1]), float64(bytes)/1024)
		if size.within > 0 && p95 > size.within {
			slow = append(slow, fmt.Errorf("%s: p95 is %s, above %s", p.name, p95, size.within))
		}
	}
	return errors.Join(slow...)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// get requests a page, and reads it to its end.
func (s *stage) get(ctx context.Context, address string) (bytes int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+address, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "text/html")
	a, err := s.server.Client().Do(r)
	if err != nil {
		return 0, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", a.Status, text)
	}
	return len(text), err
}
