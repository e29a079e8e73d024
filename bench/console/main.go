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
	"slices"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
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
	size := full
	small := flag.Bool("quick", false, harness.QuickUsage)
	sagas := flag.Int("sagas", 0, "`sagas` that there are (default 1,000,000)")
	times := flag.Int("times", 0, "how many `times` each page is requested (default 100)")
	within := flag.Duration("within", 0, "`time` in which 95 of 100 answers of each page must be there (default: any)")
	harness.Main("console", "Measures the console.\n\n  go run -C bench ./console --sagas 100000 --times 50 --within 50ms", func(ctx context.Context) error {
		if *small {
			size = quick
		}
		harness.Set(&size.sagas, *sagas)
		harness.Set(&size.times, *times)
		size.within = *within
		return run(ctx, size)
	})
}

// answers holds the times of a page's answers.
type answers struct{ least, p50, p95, most, kib float64 }

var table = harness.Table[answers]{Width: 44, Columns: []harness.Column[answers]{
	{Head: "min ms", Width: 8, Decimals: 1, Figure: func(a *answers) *float64 { return &a.least }},
	{Head: "p50 ms", Width: 8, Decimals: 1, Figure: func(a *answers) *float64 { return &a.p50 }},
	{Head: "p95 ms", Width: 8, Decimals: 1, Figure: func(a *answers) *float64 { return &a.p95 }},
	{Head: "max ms", Width: 8, Decimals: 1, Figure: func(a *answers) *float64 { return &a.most }},
	{Head: "KiB", Width: 8, Decimals: 1, Figure: func(a *answers) *float64 { return &a.kib }},
}}

func run(ctx context.Context, size sizes) (err error) {
	s, err := open(ctx, size)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return err
	}
	fmt.Printf("%s, load %s, Postgres %s; %d sagas, %d dead letters, %d held keys, %d messages of flows; each page %d times\n\n",
		harness.Platform(), harness.Load(), s.Version, size.sagas, size.letters, size.held, size.messages, size.times)
	pages, err := s.pagesToRequest(ctx)
	if err != nil {
		return err
	}
	table.Heading()
	var slow []error
	for _, p := range pages {
		times := make([]time.Duration, 0, size.times)
		bytes := 0
		for i := range size.times + 3 { // the first few open connections
			began := time.Now()
			if bytes, err = s.get(ctx, p.address); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if i >= 3 {
				times = append(times, time.Since(began))
			}
		}
		slices.Sort(times)
		ms := func(p float64) float64 { return harness.Percentile(times, p).Seconds() * 1000 }
		table.Show(p.name, answers{ms(0), ms(0.5), ms(0.95), ms(1), float64(bytes) / 1024})
		if p95 := harness.Percentile(times, 0.95); size.within > 0 && p95 > size.within {
			slow = append(slow, fmt.Errorf("%s: p95 is %s, above %s", p.name, p95, size.within))
		}
	}
	return errors.Join(slow...)
}

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
