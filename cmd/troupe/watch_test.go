package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/door/doortest"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// watchedOrder sends orders of which some violate the declarations, and returns the folder of the declarations.
func watchedOrder(t *testing.T, flow string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for hop, text := range map[string]string{
		"order":     `"starts": [{"topic": "order.order.events", "type": "shop.Placed"}]`,
		"payment":   `"reactions": [{"on": {"topic": "order.order.events", "type": "shop.Placed"}, "success": [{"topic": "order.payment.events", "type": "shop.Paid"}]}]`,
		"inventory": `"reactions": [{"on": {"topic": "order.order.events", "type": "shop.Placed"}, "success": [{"topic": "order.inventory.events", "type": "shop.Reserved"}]}]`,
		"shipping": `"joins": [{"name": "ready", "await": [{"topic": "order.payment.events", "type": "shop.Paid"},
			{"topic": "order.inventory.events", "type": "shop.Reserved"}], "success": [{"topic": "order.shipping.events", "type": "shop.Shipped", "last": true}]}]`,
	} {
		text = strings.ReplaceAll(`{"hop": "order.`+hop+`", `+text+`}`, `"order.`, `"`+flow+`.`)
		require.NoError(t, os.WriteFile(filepath.Join(folder, hop+".reactions.json"), []byte(text), 0o600))
	}
	client, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	defer client.Close()
	var records []*kgo.Record
	at := time.Now().Add(-time.Hour)
	say := func(hop, typ, key, id, cause string, after time.Duration) {
		r := kafka.Record(envelope.Message{
			Topic: flow + "." + hop + ".events", Key: []byte(key), Type: "shop." + typ, ID: id, CausationID: cause, CorrelationID: key + "-1",
			Outcome: envelope.Success, Time: at.Add(after),
		})
		r.Timestamp = at.Add(after)
		records = append(records, r)
	}
	for _, hop := range []string{"order", "payment", "inventory", "shipping"} {
		topic := flow + "." + hop + ".events"
		require.NoError(t, kafka.Provision(t.Context(), client, kafka.Topic{Name: topic, Partitions: 1}))
		testkit.Wait(t, topic, func() (bool, error) {
			ids, err := kafka.TopicIDs(t.Context(), client, topic)
			return len(ids) == 1, err
		})
	}
	ms := time.Millisecond
	say("order", "Placed", "o-1001", "o-1001-1", "", 0)
	say("payment", "Paid", "o-1001", "o-1001-2", "o-1001-1", 12*ms)
	say("inventory", "Reserved", "o-1001", "o-1001-3", "o-1001-1", 19*ms)
	say("shipping", "Shipped", "o-1001", "o-1001-4", "o-1001-3", 31*ms)
	say("order", "Placed", "o-1002", "o-1002-1", "", time.Second)
	say("inventory", "Reserved", "o-1002", "o-1002-3", "o-1002-1", time.Second+14*ms)
	say("payment", "Payed", "o-1002", "o-1002-2", "o-1002-1", time.Second+20*ms)
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	return folder
}

// TestWatchPrintsWhatItFindsAndShowsEachFlow runs the watcher until it is stopped, and then reads its stored findings and
// flows.
func TestWatchPrintsWhatItFindsAndShowsEachFlow(t *testing.T) {
	t.Parallel()
	flow, pool := testkit.Flow(t), testkit.Database(t)
	folder := watchedOrder(t, flow)
	env := []string{"DATABASE_URL=" + grantstest.New(t, pool, grants.Watch).URL(), "KAFKA_BROKERS=" + strings.Join(testkit.Kafka(t), ",")}
	plain := func(text string) string { return strings.ReplaceAll(text, flow, "order") }

	cmd := command(t, env, "watch", "--reactions", folder, "--output", "json", "--admin", "127.0.0.1:0")
	stderr, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer stderr.Close()
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	require.NoError(t, cmd.Start())
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	var admin string
	testkit.Wait(t, "the findings to be counted", func() (bool, error) {
		if admin = served(t, stderr.Name()); admin == "" {
			return false, nil
		}
		page := asked(t, admin, "/metrics")
		return strings.Contains(page, `troupe_watch_findings_total{troupe_flow="`+flow+`",troupe_watch_kind="missing"} 1`) &&
			strings.Contains(page, `troupe_watch_findings_total{troupe_flow="`+flow+`",troupe_watch_kind="late"} 0`), nil
	})
	require.Equal(t, "ok\n", asked(t, admin, "/readyz"))
	rebound, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/metrics", nil)
	require.NoError(t, err)
	rebound.Host = "watch.evil.example" // as a web page of another site may request
	response, err := http.DefaultClient.Do(rebound)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusMisdirectedRequest, response.StatusCode)
	doortest.RequireLimit(t, admin, "/livez")
	testkit.Wait(t, "the findings to be stored", func() (bool, error) {
		desk, err := watch.OpenDesk(t.Context(), pool, flow)
		if err != nil {
			return false, nil // it has not begun
		}
		found, err := desk.Findings(t.Context(), true, 10)
		return len(found) == 3 && !desk.SeenAt().IsZero(), err
	})
	stopped = true
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	var kinds []string
	for line := range strings.Lines(stdout.String()) {
		var one watch.Finding
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		kinds = append(kinds, string(one.Kind))
	}
	require.ElementsMatch(t, []string{"unexpected", "missing", "stuck join"}, kinds)

	ask := func(args ...string) string {
		o := finish(t, command(t, env, append([]string{"watch"}, args...)...))
		require.Equal(t, 0, o.status, o.stderr)
		t.Logf("troupe watch %s\n%s", strings.Join(args, " "), plain(o.stdout))
		return plain(o.stdout)
	}
	list := ask("list")
	require.Regexp(t, `(?m)^o-1002-1 +o-1002 +deviant +3 .* 20ms$`, list)
	require.Regexp(t, `(?m)^o-1001-1 +o-1001 +completed +4 .* 31ms$`, list)
	require.Contains(t, list, "\nflow order, seen up to 20")
	for args, want := range map[string][]string{
		"--status deviant": {"o-1002-1"}, "--status completed --key o-1001": {"o-1001-1"}, "--status parked": nil, "--found missing": {"o-1002-1"},
		"--key o-1001": {"o-1001-1"}, "--since 2020-01-01T00:00:00Z --before 2020-01-02T00:00:00Z": nil,
	} {
		var page struct {
			Flows []watch.Flow
			Next  string
		}
		require.NoError(t, json.Unmarshal([]byte(ask(append([]string{"list", "--output", "json"}, strings.Fields(args)...)...)), &page))
		var ids []string
		for _, one := range page.Flows {
			ids = append(ids, one.ID)
		}
		require.Equal(t, want, ids, args)
		require.Empty(t, page.Next, args)
	}
	require.Contains(t, ask("list", "--key", "nobody"), "No flows.\n")
	_, mark, more := strings.Cut(ask("list", "--limit", "1"), "There are more: --after ")
	require.True(t, more)
	mark, _, _ = strings.Cut(mark, "\n")
	require.NotContains(t, ask("list", "--limit", "1", "--after", mark), "There are more")
	found := ask("findings")
	require.Contains(t, found, "order.payment has not sent shop.Paid within 1m0s after shop.Placed of order.order.events")
	require.Contains(t, found, "it waits for order.payment.events shop.Paid")
	require.Contains(t, found, "shop.Payed on order.payment.events is declared by no service")
	require.Contains(t, ask("show", "o-1001"), `
  ✓ order Placed            +0 ms
  ├─ ✓ payment Paid         +12 ms
  └─ ✓ inventory Reserved   +19 ms
     └─ ✓ shipping Shipped  +31 ms, 12 ms after its cause
`)
	require.Contains(t, ask("show", "o-1002"), "\n  ? order.payment shop.Paid\n")
	var shown struct{ Shown watch.Flow }
	require.NoError(t, json.Unmarshal([]byte(ask("show", "o-1001-1", "--output", "json")), &shown))
	require.Equal(t, watch.Completed, shown.Shown.Status)
	require.Len(t, shown.Shown.Messages, 4)
	o := finish(t, command(t, env, "watch", "show", "o-1003"))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stderr, `flow or key "o-1003": not seen by a watcher`)
}

// served returns the admin address that a process has logged; "" before.
func served(t *testing.T, log string) string {
	t.Helper()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var said struct{ Admin string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Admin != "" {
			return said.Admin
		}
	}
	return ""
}

// asked returns the response to a path of an admin address; "" while no process listens.
func asked(t *testing.T, address, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := client.Get("http://" + address + path)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

func TestWatchSaysWhatIsWrongWithItsFlags(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "reactions.json"),
		[]byte(`{"hop": "order.order", "starts": [{"topic": "order.order.events", "type": "Placed"}]}`), 0o600))
	for want, args := range map[string]string{
		"--brokers is not set":                 "--reactions " + folder,
		"--reactions is not set":               "--brokers 127.0.0.1:1",
		"no reactions.json":                    "--brokers 127.0.0.1:1 --reactions " + t.TempDir(),
		"is of another":                        "--brokers 127.0.0.1:1 --flow shop --reactions " + folder,
		"want at most 336h":                    "--brokers 127.0.0.1:1 --retention 400h --reactions " + folder,
		"--admin: \"nowhere\": want host:port": "--brokers 127.0.0.1:1 --admin nowhere --reactions " + folder,
		"--limit 0: want":                      "list --limit 0",
		`status "gone": want one of`:           "list --status gone",
		`found "odd": want one of`:             "list --found odd",
		"want table, json, yaml":               "show o-1 --output svg",
		"--database-url is not set":            "findings --database-url=",
		"accepts 1 arg(s), received 0":         "show",
		"unknown flag: --kafka":                "--kafka 127.0.0.1:1",
	} {
		env := []string{"KAFKA_BROKERS=", "DATABASE_URL=postgres://127.0.0.1:1/none"}
		if strings.HasPrefix(args, "findings") {
			env = append(env, "DATABASE_URL=")
		}
		o := finish(t, command(t, env, append([]string{"watch"}, strings.Fields(args)...)...))
		require.Equal(t, 2, o.status, fmt.Sprint(args, o))
		require.Contains(t, o.stderr, want)
	}
}
