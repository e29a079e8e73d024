package modeltest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(memberEnv); task != "" {
		beMember(task)
		return
	}
	flag.Parse()
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	// One check for each rapid.Check: the loop around it ends by the clock.
	for name, value := range map[string]string{"rapid.checks": "1", "rapid.nofailfile": "true", "rapid.shrinktime": "90s"} {
		if !set[name] {
			must(flag.Set(name, value))
		}
	}
	testkit.Main(m)
}

// open starts the servers and creates the database that histories copy.
func open(t *testing.T) *theater {
	address := testkit.DatabaseURL(t, testkit.Database(t))
	config, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	th := &theater{postgres: testkit.Postgres(t), brokers: testkit.Kafka(t), template: config.Database + "_model", flow: testkit.Flow(t)}
	th.log = func(text string) { t.Log(text) }
	made, err := th.postgres.CreateDatabase(t.Context(), th.template, config.Database)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, th.postgres.DropDatabase(context.Background(), th.template)) })
	conn, err := pgx.Connect(t.Context(), made)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), schema)
	require.NoError(t, err)
	// Tables that are empty now are emptied when a history begins.
	rows, err := conn.Query(t.Context(), `
		SELECT format('%I.%I', n.nspname, c.relname)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname IN ('troupe', 'public') AND c.relkind IN ('r', 'p') AND NOT c.relispartition`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, table := range tables {
		used := false
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM "+table+")").Scan(&used))
		if !used {
			th.empties += "DELETE FROM " + table + ";"
		}
	}
	require.NoError(t, conn.Close(t.Context()))
	return th
}

// database creates a copy of the template for one history after the other.
func (th *theater) database(t *testing.T, n int) string {
	name := fmt.Sprintf("%s_%d", th.template, n)
	_, err := th.postgres.CreateDatabase(t.Context(), name, th.template)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, th.postgres.DropDatabase(context.Background(), name)) })
	return name
}

// modelHistories limits the histories of a run without random ones (TROUPE_MODEL). Their seeds begin with 1.
const modelHistories = 32

// TestHistoriesEndAsTheModelSays runs random histories for the time TROUPE_MODEL, or the one that -rapid.seed or
// -rapid.failfile names, or else the same few at each run.
func TestHistoriesEndAsTheModelSays(t *testing.T) {
	if testing.Short() {
		t.Skip("histories take minutes")
	}
	length, workers := time.Duration(0), 4
	if text := os.Getenv("TROUPE_MODEL"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	if text := os.Getenv("TROUPE_MODEL_WORKERS"); text != "" {
		var err error
		workers, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	one := flag.Lookup("rapid.seed").Value.String() != "0" || flag.Lookup("rapid.failfile").Value.String() != ""
	if one {
		workers = 1
	}
	th := open(t)
	end := time.Now().Add(length)
	few := !one && length == 0
	if few {
		t.Cleanup(func() { require.NoError(t, flag.Set("rapid.seed", "0")) })
	}
	var seed sync.Mutex // locked from the time when the flag for rapid's seed is set until rapid has read it
	var last atomic.Int64
	check := func(t *testing.T, history func(*rapid.T)) {
		read := func() {}
		if few {
			n := last.Add(1)
			if n > modelHistories {
				return // another worker has taken the last one
			}
			seed.Lock()
			read = sync.OnceFunc(seed.Unlock)
			defer read()
			t.Logf("seed %d", n)
			require.NoError(t, flag.Set("rapid.seed", fmt.Sprint(n)))
		}
		rapid.Check(t, func(r *rapid.T) {
			read()
			history(r)
		})
	}
	t.Run("histories", func(t *testing.T) {
		for n := range workers {
			t.Run(fmt.Sprintf("worker %d", n+1), func(t *testing.T) {
				t.Parallel()
				database, ran := th.database(t, n), 0
				for ; ran == 0 || !one && (time.Now().Before(end) || last.Load() < modelHistories && few) && !t.Failed(); ran++ {
					check(t, func(r *rapid.T) {
						h := th.begin(r, rapid.Custom(draw).Draw(r, "plan"), database)
						h.run()
						h.settle()
						h.stopAll()
						h.mustRelay()
						h.verdict()
					})
					require.Less(t, residentMemory(), int64(memoryLimit), "bytes of memory after %d histories", ran+1)
				}
				t.Logf("%d histories", ran)
			})
		}
	})
}

// memoryLimit limits this process, with the embedded broker in it, however many histories it has run.
const memoryLimit = 1 << 30

// residentMemory returns the process's memory, 0 if the system does not show it.
func residentMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	var kB int64
	for line := range strings.Lines(string(status)) {
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kB); n == 1 {
			return kB << 10
		}
	}
	return 0
}
