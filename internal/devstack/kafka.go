package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/address"
)

// KafkaConfig configures an embedded broker. The zero value runs a throw-away one.
type KafkaConfig struct {
	// DataDir has the broker's data, and is kept; a folder of an earlier run is used again. Default: a temporary folder, removed
	// at Close. The records are on disk in either case, so that a long run does not fill the memory.
	DataDir string
	// Partitions of a topic whose creator leaves the number to the broker. Default 6. No topic is created by being used.
	Partitions int
	// Port is where it listens, on 127.0.0.1. Default: a free one.
	Port int
	// Log gets a line for each start and end. The zero value discards them.
	Log zerolog.Logger
}

// Kafka is a broker: kfake in this process, or the ones that TROUPE_KAFKA names.
type Kafka struct {
	addrs   []string
	cluster *kfake.Cluster // nil if it runs elsewhere
	members *members
	scratch *scratch // nil unless the data is temporary
	log     zerolog.Logger
}

// StartKafka starts one broker on 127.0.0.1. The broker stores a topic's configuration, but does not apply it; and a member that
// dies during a rebalance stalls its group for the member's rebalance time-out: keep that below the session time-out.
func StartKafka(_ context.Context, cfg KafkaConfig) (*Kafka, error) {
	if cfg.Partitions == 0 {
		cfg.Partitions = 6
	}
	k := &Kafka{log: cfg.Log}
	if cfg.DataDir == "" {
		var err error
		if k.scratch, err = newScratch("kafka", account{}); err != nil {
			return nil, fmt.Errorf("start Kafka: %w", err)
		}
		cfg.DataDir = k.scratch.dir + "/data"
	}
	var err error
	k.cluster, err = kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.Ports(cfg.Port), // 0: a free one
		kfake.DataDir(cfg.DataDir),
		kfake.DefaultNumPartitions(cfg.Partitions),
		kfake.GroupMinSessionTimeout(100*time.Millisecond),
	)
	if err == nil {
		if k.members, err = watchMembers(k.cluster); err != nil {
			k.cluster.Close()
		}
	}
	if err != nil {
		if k.scratch != nil {
			err = errors.Join(err, k.scratch.remove())
		}
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	k.addrs = k.cluster.ListenAddrs()
	k.log.Info().Strs("brokers", k.addrs).Str("data", cfg.DataDir).Msg("embedded kafka started")
	return k, nil
}

// OpenKafka uses the brokers whose addresses are in TROUPE_KAFKA, else it starts one.
func OpenKafka(ctx context.Context, cfg KafkaConfig) (*Kafka, error) {
	list := os.Getenv("TROUPE_KAFKA")
	if list == "" {
		return StartKafka(ctx, cfg)
	}
	addrs, err := address.ParseBrokers(list)
	if err != nil {
		return nil, fmt.Errorf("TROUPE_KAFKA: %w", err)
	}
	k := &Kafka{log: cfg.Log, addrs: addrs}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.addrs...))
	if err != nil {
		return nil, fmt.Errorf("TROUPE_KAFKA: %w", err)
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil {
		return nil, fmt.Errorf("TROUPE_KAFKA: %w", err)
	}
	return k, nil
}

// Addrs returns the bootstrap addresses, host:port.
func (k *Kafka) Addrs() []string { return k.addrs }

// Close stops the broker and removes temporary data. It does nothing to brokers elsewhere.
func (k *Kafka) Close() error {
	if k.cluster == nil {
		return nil
	}
	k.members.close()
	k.cluster.Close()
	k.log.Info().Msg("embedded kafka stopped")
	if k.scratch == nil {
		return nil
	}
	return k.scratch.remove()
}
