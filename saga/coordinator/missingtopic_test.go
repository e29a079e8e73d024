package coordinator_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/testkit"
)

// TestAProcessRunsWithoutTheTopicThatOnlyALaterVersionReads: the later version was stored, as by a rollout or by an operator, before the topic of one
// of its hops was made, and the broker lets the service make no topics.
func TestAProcessRunsWithoutTheTopicThatOnlyALaterVersionReads(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	var allowed atomic.Bool
	refused := make(chan struct{}, 1000)
	cluster.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		topic := r.(*kmsg.CreateTopicsRequest).Topics[0].Topic
		if allowed.Load() || !strings.HasSuffix(topic, ".notary.events") {
			return nil, nil, false
		}
		refused <- struct{}{}
		response := r.ResponseKind().(*kmsg.CreateTopicsResponse)
		of := kmsg.NewCreateTopicsResponseTopic()
		of.Topic, of.ErrorCode = topic, kerr.TopicAuthorizationFailed.Code
		response.Topics = append(response.Topics, of)
		return response, nil, true
	})

	f := &flow{t: t, name: testkit.Flow(t), pool: testkit.Database(t), brokers: cluster.ListenAddrs()}
	earlier := approval(t, "approval", "Approved", false)
	f.c = f.coordinator(earlier) // runs, and its relay
	first := f.begun("approval", map[string]any{"id": "a-1"})
	f.publishEvent("Approved", "a-1")
	f.completes(first)

	later := f.notRunning(parsed(t, `{"saga":"approval","version":2,"key":"id","data":{"id":"string"},
 "steps":[{"name":"sign","success":[{"event":"Signed","hop":"notary"}]}]}`))
	<-refused // the process knows the later version
	second := f.begun("approval", map[string]any{"id": "a-2"})
	f.publishEvent("Approved", "a-2")
	f.completes(second)

	f.coordinator(earlier) // begins although the later version is stored
	third := f.begun("approval", map[string]any{"id": "a-3"})
	f.publishEvent("Approved", "a-3")
	f.completes(third)

	f.c = later
	fourth := f.begun("approval", map[string]any{"id": "a-4"})
	allowed.Store(true)
	const publish = "INSERT INTO troupe.outbox (topic, key, type, payload, headers) VALUES ($1, $2, 'Signed', '{}', '{\"ce_outcome\": \"success\"}')"
	_, err = f.pool.Exec(t.Context(), publish, f.name+".notary.events", "a-4")
	require.NoError(t, err)
	f.completes(fourth)
}
