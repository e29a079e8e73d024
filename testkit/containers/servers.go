package containers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// password is the superuser's.
const password = "test"

func (s *Stack) startPostgres(ctx context.Context) error {
	c, err := s.run(ctx, s.cfg.Images.Postgres, "postgres",
		testcontainers.WithExposedPorts("5432/tcp"),
		testcontainers.WithEnv(map[string]string{"POSTGRES_PASSWORD": password}),
		// Tests need no data after a crash of the machine.
		testcontainers.WithCmd("postgres", "-c", "wal_level=logical", "-c", "fsync=off", "-c", "max_connections=300"),
		// Over TCP: during its initialisation the server listens on its socket only.
		testcontainers.WithWaitStrategyAndDeadline(startLimit,
			wait.ForExec([]string{"pg_isready", "-h", "127.0.0.1", "-U", "postgres"}).WithStartupTimeout(startLimit)),
	)
	if err == nil {
		s.postgres, err = c.PortEndpoint(ctx, "5432/tcp", "")
	}
	return err
}

// startScript is the file that the container of Kafka waits for before it starts the broker. Kafka advertises the port on the host to its
// clients, and this port is known only when the container runs.
const startScript = "/tmp/start.sh"

func (s *Stack) startKafka(ctx context.Context) error {
	_, err := s.run(ctx, s.cfg.Images.Kafka, "kafka",
		testcontainers.WithExposedPorts("19092/tcp"),
		testcontainers.WithEnv(map[string]string{
			"KAFKA_NODE_ID":                                          "1",
			"KAFKA_PROCESS_ROLES":                                    "broker,controller",
			"KAFKA_CONTROLLER_QUORUM_VOTERS":                         "1@localhost:9093",
			"KAFKA_CONTROLLER_LISTENER_NAMES":                        "CONTROLLER",
			"KAFKA_LISTENERS":                                        "PLAINTEXT://:9092,CONTROLLER://:9093,HOST://:19092",
			"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":                   "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,HOST:PLAINTEXT",
			"KAFKA_INTER_BROKER_LISTENER_NAME":                       "PLAINTEXT",
			"KAFKA_AUTO_CREATE_TOPICS_ENABLE":                        "false",
			"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR":                 "1",
			"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR":         "1",
			"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR":                    "1",
			"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
			"KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR":            "1",
			"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS":                 "0",
			"KAFKA_HEAP_OPTS":                                        "-Xms128m -Xmx512m",
		}),
		testcontainers.WithEntrypoint("sh", "-c", "while [ ! -f "+startScript+" ]; do sleep 0.1; done; exec sh "+startScript),
		testcontainers.WithLifecycleHooks(testcontainers.ContainerLifecycleHooks{
			PostStarts: []testcontainers.ContainerHook{func(ctx context.Context, c testcontainers.Container) (err error) {
				if s.kafka, err = c.PortEndpoint(ctx, "19092/tcp", ""); err != nil {
					return err
				}
				script := fmt.Sprintf("export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://kafka:9092,HOST://%s\nexec /etc/kafka/docker/run\n", s.kafka)
				if err := c.CopyToContainer(ctx, []byte(script), startScript, 0o755); err != nil {
					return err
				}
				return wait.ForLog("Kafka Server started").WithStartupTimeout(startLimit).WithPollInterval(time.Second).WaitUntilReady(ctx, c)
			}},
		}),
	)
	return err
}

const registryAPI = "/apis/ccompat/v7"

func (s *Stack) startRegistry(ctx context.Context) error {
	c, err := s.run(ctx, s.cfg.Images.Registry, "registry",
		testcontainers.WithExposedPorts("8080/tcp"),
		testcontainers.WithEnv(map[string]string{"APICURIO_RULES_GLOBAL_COMPATIBILITY": "BACKWARD"}),
		testcontainers.WithWaitStrategyAndDeadline(startLimit, wait.ForHTTP(registryAPI+"/subjects").WithPort("8080/tcp").WithStartupTimeout(startLimit)),
	)
	if err != nil {
		return err
	}
	address, err := c.PortEndpoint(ctx, "8080/tcp", "http")
	s.registry = address + registryAPI
	return err
}

func (s *Stack) startRelay(ctx context.Context, database string) error {
	env := map[string]string{
		"DATABASE_URL":         fmt.Sprintf("postgres://postgres:%s@postgres:5432/%s?sslmode=disable", password, database),
		"KAFKA_BROKERS":        "kafka:9092",
		"OUTBOX_RELAY_SERVICE": database,
	}
	maps.Copy(env, s.cfg.RelayEnv)
	c, err := s.run(ctx, s.cfg.Images.Relay, database+"-relay",
		testcontainers.WithEnv(env),
		testcontainers.WithWaitStrategyAndDeadline(startLimit, wait.ForExec([]string{"/app", "healthcheck"}).WithStartupTimeout(startLimit)),
	)
	s.relays[database] = c
	return err
}

func readLog(ctx context.Context, c testcontainers.Container) (string, error) {
	log, err := c.Logs(ctx)
	if err != nil {
		return "", err
	}
	defer log.Close()
	text, err := io.ReadAll(log)
	return string(text), err
}
