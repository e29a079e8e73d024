package doctor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// cluster starts a broker for one test.
func cluster(t *testing.T, opts ...kfake.Opt) []string {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

func admin(t *testing.T, brokers []string, opts ...kgo.Opt) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(brokers...))...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

func TestBrokersThatCannotBeReachedAreSaid(t *testing.T) {
	t.Parallel()
	r := examine(t, doctor.Config{Brokers: []string{"127.0.0.1:1"}})
	f := require1(t, r, "kafka")
	require.Equal(t, doctor.Failure, f.Level)
	require.Contains(t, f.Remedy, "no server listens there")
}

func TestAnOldBrokerIsSaid(t *testing.T) {
	t.Parallel()
	for version, c := range map[*kversion.Versions]struct {
		level doctor.Level
		found string
	}{
		kversion.V2_6_0(): {doctor.Failure, "does not support topic ids"},
		kversion.V3_5_0(): {doctor.Warning, "older protocol than Kafka 3.7"},
		kversion.V3_9_0(): {doctor.OK, "1 speaks as "},
	} {
		r := examine(t, doctor.Config{Brokers: cluster(t, kfake.NumBrokers(1), kfake.MaxVersions(version))})
		all := of(r, "brokers")
		require.NotEmpty(t, all)
		require.Equal(t, c.level, all[0].Level, "%+v", all)
		require.Contains(t, all[0].Found, c.found)
	}
}

// TestTopicsThatLoseMessagesAreFound checks that each finding names the topics that have the fault, and no others.
func TestTopicsThatLoseMessagesAreFound(t *testing.T) {
	t.Parallel()
	brokers := cluster(t, kfake.NumBrokers(3))
	a := admin(t, brokers)
	for name, made := range map[string]struct {
		replicas int16
		config   map[string]string
		level    doctor.Level
		found    string
	}{
		"f.good.commands":      {3, map[string]string{"min.insync.replicas": "2"}, doctor.OK, ""},
		"f.compacted.events":   {3, map[string]string{"min.insync.replicas": "2", "cleanup.policy": "compact,delete"}, doctor.Failure, "is compacted"},
		"f.short.events":       {3, map[string]string{"min.insync.replicas": "2", "retention.ms": "60000"}, doctor.Warning, "keeps messages for 1m0s"},
		"f.small.events":       {3, map[string]string{"min.insync.replicas": "2", "retention.bytes": "1000"}, doctor.Warning, "keeps at most 1000 bytes"},
		"f.alone.commands":     {1, map[string]string{"min.insync.replicas": "1"}, doctor.Warning, "has 1 replica on 3 brokers"},
		"f.weak.commands":      {3, map[string]string{"min.insync.replicas": "1"}, doctor.Warning, "has min.insync.replicas 1"},
		"f.stiff.commands":     {3, map[string]string{"min.insync.replicas": "3"}, doctor.Warning, "without one broker nothing can be written"},
		"f.impossible.events":  {1, map[string]string{"min.insync.replicas": "2"}, doctor.Failure, "wants min.insync.replicas 2 and has 1"},
		"f.unclean.dlq":        {3, map[string]string{"min.insync.replicas": "2", "unclean.leader.election.enable": "true"}, doctor.Warning, "may elect a leader"},
		"other.good.commands":  {1, nil, doctor.OK, ""},
		"f.strangers-own-name": {3, map[string]string{"min.insync.replicas": "2", "cleanup.policy": "compact"}, doctor.OK, ""},
	} {
		config := make(map[string]*string)
		for k, v := range made.config {
			config[k] = &v
		}
		_, err := a.CreateTopic(t.Context(), 2, made.replicas, config, name)
		require.NoError(t, err, name)
		r := examine(t, doctor.Config{Brokers: brokers, Flow: "f"})
		var told []string
		for _, f := range of(r, "topics") {
			if strings.HasPrefix(f.Found, name+": ") {
				told = append(told, f.Found)
				if strings.Contains(f.Found, made.found) {
					require.Equal(t, made.level, f.Level, f.Found)
					require.Contains(t, f.Remedy, name)
				}
			}
		}
		if made.found == "" {
			require.Empty(t, told)
		} else {
			require.Contains(t, strings.Join(told, "\n"), made.found)
		}
		_, err = a.DeleteTopic(t.Context(), name)
		require.NoError(t, err)
	}
}

func TestTopicsOfHopsAreMissed(t *testing.T) {
	t.Parallel()
	brokers := testkit.Kafka(t)
	hop := topics.MustHop(testkit.Flow(t), "payment")
	look := doctor.Config{Brokers: brokers, Hops: []topics.Hop{hop}}
	f := require1(t, examine(t, look), "topics")
	require.Equal(t, doctor.Warning, f.Level, "the participant makes them")
	require.Equal(t, strings.Join([]string{hop.Commands(), hop.DeadLetters(), hop.Events()}, ", ")+": does not exist", f.Found)

	_, err := admin(t, brokers).CreateTopics(t.Context(), 3, 1, nil, hop.Commands(), hop.Events(), hop.DeadLetters())
	require.NoError(t, err)
	testkit.Wait(t, "the topics", func() (bool, error) {
		r := examine(t, look)
		return len(of(r, "topics")) == 1 && of(r, "topics")[0].Found == "3 of 3 looked at exist, 3 partitions each", nil
	})
	r := examine(t, doctor.Config{Brokers: brokers, Flow: testkit.Flow(t)})
	require.Contains(t, require1(t, r, "topics").Found, "none begins with")
}

func TestMissingKafkaRightsAreReported(t *testing.T) {
	t.Parallel()
	as := func(user string) kgo.Opt { return kgo.SASL(plain.Auth{User: user, Pass: "s3cr3t"}.AsMechanism()) }
	allow := func(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	brokers := cluster(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "s3cr3t"),
		kfake.SeedTopics(1, "f.h.commands", "f.h.events", "f.h.dlq"),
		kfake.User("PLAIN", "service", "s3cr3t",
			allow(kmsg.ACLResourceTypeTopic, "f.h.commands", kmsg.ACLOperationDescribe),
			allow(kmsg.ACLResourceTypeTopic, "f.h.events", kmsg.ACLOperationWrite),
			allow(kmsg.ACLResourceTypeTopic, "f.h.dlq", kmsg.ACLOperationDescribe),
		))
	look := doctor.Config{Brokers: brokers, Hops: []topics.Hop{topics.MustHop("f", "h")}, Kafka: []kgo.Opt{as("root")}}
	for _, f := range of(examine(t, look), "topics") {
		require.NotContains(t, f.Found, "may not")
	}
	look.Kafka = []kgo.Opt{as("service")}
	var denied []string
	for _, f := range of(examine(t, look), "topics") {
		if strings.Contains(f.Found, "may not") {
			require.Equal(t, doctor.Failure, f.Level)
			denied = append(denied, f.Found+" → "+f.Remedy)
		}
	}
	require.Equal(t, []string{
		"f.h.commands: this client may not read it → kafka-acls --add --allow-principal User:… --operation read --topic f.h.commands",
		"f.h.dlq: this client may not write it → kafka-acls --add --allow-principal User:… --operation write --topic f.h.dlq",
	}, denied)

	look.Kafka = []kgo.Opt{as("nobody")}
	f := require1(t, examine(t, look), "kafka")
	require.Equal(t, doctor.Failure, f.Level)
	require.Contains(t, f.Remedy, "password", f.Found)
}
