//go:build unix

package sidecar_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/testkit"
)

// silentBroker returns a broker with the topic silent that stores no record before answer is called. asked gets a value for each produce
// request.
func silentBroker(t *testing.T) (addresses string, asked <-chan struct{}, answer func()) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "silent"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	answers, requests := make(chan struct{}), make(chan struct{}, 1000)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		requests <- struct{}{}
		cluster.SleepControl(func() { <-answers })
		return nil, nil, false
	})
	return strings.Join(cluster.ListenAddrs(), ","), requests, func() { close(answers) }
}

// A reload that changes the settings of two outboxes restarts the relay of one while the other's still waits for a broker that does not
// answer.
func TestAReloadWaitsForNoBrokerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	environ, shop, shopTopic := site(t)
	others, bank, _ := site(t)
	brokers, asked, answer := silentBroker(t)
	path := configFile(t, "")
	write := func(batch int) {
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
admin: %q
drain: 1h
unknown-topic: 1h
batch: %d
outboxes:
  - {name: bank, database-url: %q, brokers: %q}
  - {name: shop, database-url: %q, brokers: %q}
`, anyPort, batch, variable(others, "DATABASE_URL"), brokers, variable(environ, "DATABASE_URL"), variable(environ, "KAFKA_BROKERS")), 0o600))
	}
	write(10)
	p := launch(t, nil, "run", "--config", path)
	consumer := testkit.Consume(t, testkit.Kafka(t), shopTopic)
	insert(t, shop, shopTopic, "s-1")
	consumer.WaitN(1)
	insert(t, bank, "silent", "b-1")
	<-asked

	write(11)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Wait(t, "the reload", func() (bool, error) { return strings.Count(p.logs(), "the outbox's relay is restarted") == 2, nil })
	insert(t, shop, shopTopic, "s-2")
	consumer.WaitN(2)
	_, body, err := p.get("/readyz?outbox=bank")
	require.NoError(t, err)
	require.Contains(t, body, "the relay with the former settings drains")
	_, body, err = p.get("/metrics")
	require.NoError(t, err)
	require.Contains(t, body, `outbox_relay_rows_captured_total{outbox="bank"} 1`)

	insert(t, bank, "silent", "b-2")
	answer()
	testkit.Wait(t, "the rows of the other outbox to be deleted", func() (bool, error) {
		var rows int
		err := bank.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox").Scan(&rows)
		return rows == 0, err
	})
	require.Equal(t, 0, p.terminate())
}

// systemd, for one, can send SIGHUP after SIGTERM.
func TestAHangUpWhileTheRelaysDrainDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	environ, _, _ := site(t)
	others, bank, _ := site(t)
	brokers, asked, answer := silentBroker(t)
	path := configFile(t, fmt.Sprintf(`
drain: 1h
unknown-topic: 1h
outboxes:
  - {name: bank, database-url: %q, brokers: %q}
  - {name: shop, database-url: %q, brokers: %q}
`, variable(others, "DATABASE_URL"), brokers, variable(environ, "DATABASE_URL"), variable(environ, "KAFKA_BROKERS")))
	p := start(t, nil, "--config", path)
	insert(t, bank, "silent", "b-1")
	<-asked
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	testkit.Wait(t, "the other relay to stop", func() (bool, error) {
		_, body, err := p.get("/status?outbox=shop")
		return strings.Contains(body, `"role": "stopped"`), err
	})
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	answer()
	<-p.ended
	require.Equal(t, 0, p.cmd.ProcessState.ExitCode())
	var rows int
	require.NoError(t, bank.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox").Scan(&rows))
	require.Zero(t, rows)
}
