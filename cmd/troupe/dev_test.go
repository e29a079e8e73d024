package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/testkit"
)

// A row that a service writes into its outbox is published to the broker, and the console answers: a service needs no more.
func TestDevRunsWhatAServiceNeeds(t *testing.T) {
	t.Parallel()
	dev := serve(t, nil, "dev", "--flow", "booking", "--postgres-port", "0", "--kafka-port", "0", "--registry-port", "0", "--console", "127.0.0.1:0", "seat-desk", "tickets")
	settings := make(map[string]string) // DATABASE_URL and KAFKA_BROKERS of the first service
	for line := range strings.Lines(dev.said.String()) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), "export "); is && len(settings) == 0 {
			for _, setting := range strings.Fields(rest) {
				name, value, _ := strings.Cut(setting, "=")
				settings[name] = value
			}
		}
	}
	require.Contains(t, dev.said.String(), fmt.Sprintf("  export KAFKA_BROKERS=%s TROUPE_FLOW=booking TROUPE_DATABASES=%q\n", settings["KAFKA_BROKERS"],
		"seat_desk="+settings["DATABASE_URL"]+" tickets="+strings.Replace(settings["DATABASE_URL"], "/seat_desk", "/tickets", 1)))
	brokers := strings.Split(settings["KAFKA_BROKERS"], ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, "booking.seats.commands")
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), settings["DATABASE_URL"])
	require.NoError(t, err)
	require.Equal(t, "seat_desk", conn.Config().Database)
	_, err = conn.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('booking.seats.commands', 'b-1', 'ReserveSeats', '{}')")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	records := testkit.Consume(t, brokers, "booking.seats.commands").WaitN(1)
	require.Equal(t, "b-1", string(records[0].Key))

	status, page := fetch(t, dev.address, nil)
	require.Equal(t, 200, status)
	require.Contains(t, page, "tickets")
	code, said := dev.end()
	require.Equal(t, exitDone, code, said)
}

// The README of a new service has the same commands for troupe dev and for its compose file.
func TestDevHasTheAddressesOfTheComposeFile(t *testing.T) {
	t.Parallel()
	compose, err := os.ReadFile("../../internal/scaffold/service/docker-compose.yml.tmpl")
	require.NoError(t, err)
	for _, text := range []string{
		fmt.Sprintf("127.0.0.1:%d:5432", devPostgresPort), fmt.Sprintf("127.0.0.1:%d:%d", devKafkaPort, devKafkaPort), "POSTGRES_PASSWORD: " + devPassword,
	} {
		require.Contains(t, string(compose), text)
	}
}

func TestDevSaysWhatItCannotDo(t *testing.T) {
	t.Parallel()
	for want, args := range map[string]string{
		"requires at least 1 arg":       "dev",
		`database "Seats"`:              "dev Seats",
		"--flow:":                       "dev --flow A seats",
		"--demo:":                       "dev --demo=none seats",
		"with --demo the flow is order": "dev --demo --flow booking points",
		`database "order"`:              "dev --demo order",
		"this machine's own":            "dev --postgres-port 0 --kafka-port 0 --console 0.0.0.0:0 seats",
	} {
		o := finish(t, command(t, nil, strings.Fields(args)...))
		require.Equal(t, exitUsage, o.status, "%s: %+v", args, o)
		require.Contains(t, o.stderr, want, args)
	}
	o := finish(t, command(t, nil, "dev", "--postgres-port", "0", "--registry-port", "0", "--console", "127.0.0.1:0", "--brokers", "127.0.0.1:1", "seats"))
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "--brokers 127.0.0.1:1: ")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	o = finish(t, command(t, nil, "dev", "--postgres-port", fmt.Sprint(port), "seats"))
	require.Equal(t, exitFailed, o.status)
	require.Contains(t, o.stderr, "Stop it, or name another port")
}
