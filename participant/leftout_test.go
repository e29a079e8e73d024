package participant_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// rights is a stage whose broker checks the rights of its clients. The members may do everything with the topics of their hop, and may see the
// events of the hop other.
type rights struct {
	*stage
	other topics.Hop
}

func newRights(t *testing.T) *rights {
	t.Helper()
	s := &stage{t: t, pool: testkit.Database(t), hop: topics.MustHop(testkit.Flow(t), "payment")}
	s.exec(counters)
	s.exec(metTable)
	r := &rights{s, topics.MustHop(s.hop.Flow(), "other")}
	allow := func(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: op, Allow: true}
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "s3cr3t"),
		kfake.SeedTopics(1, r.other.Events()), kfake.User("PLAIN", "service", "s3cr3t",
			allow(kmsg.ACLResourceTypeTopic, s.hop.String(), kmsg.ACLOperationAll),
			allow(kmsg.ACLResourceTypeGroup, s.hop.String(), kmsg.ACLOperationAll),
			allow(kmsg.ACLResourceTypeTopic, r.other.Events(), kmsg.ACLOperationDescribe)))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s.brokers = cluster.ListenAddrs()
	s.client, err = kafka.NewClient(s.brokers, as("root"))
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	s.provision(1)
	return r
}

func as(user string) kgo.Opt { return kgo.SASL(plain.Auth{User: user, Pass: "s3cr3t"}.AsMechanism()) }

// service connects a member as the user with few rights, and writes its log to log.
func service(log *safeBuffer) func(*participant.Config) {
	return func(c *participant.Config) {
		c.Partitions, c.Log = 1, zerolog.New(log)
		c.Kafka = append(c.Kafka, as("service"))
	}
}

// mayRead lets the members read the events of the other hop, or no longer.
func (r *rights) mayRead(may bool) {
	r.t.Helper()
	const user = "User:service"
	if !may {
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.StringPtr(r.other.Events()), kmsg.ACLResourcePatternTypeLiteral
		f.Operation, f.PermissionType = kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		request := kmsg.NewPtrDeleteACLsRequest()
		request.Filters = append(request.Filters, f)
		_, err := request.RequestWith(r.t.Context(), r.client)
		require.NoError(r.t, err)
		return
	}
	c := kmsg.NewCreateACLsRequestCreation()
	c.ResourceType, c.ResourceName, c.ResourcePatternType = kmsg.ACLResourceTypeTopic, r.other.Events(), kmsg.ACLResourcePatternTypeLiteral
	c.Principal, c.Host, c.Operation, c.PermissionType = user, "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
	request := kmsg.NewPtrCreateACLsRequest()
	request.Creations = append(request.Creations, c)
	_, err := request.RequestWith(r.t.Context(), r.client)
	require.NoError(r.t, err)
}

func (r *rights) otherEvent() envelope.Message {
	m := r.command("a", Count{N: 1})
	m.Topic, m.Outcome = r.other.Events(), envelope.Success
	return m
}

// optionally makes fn the handler of the other hop's events. The participant runs without them.
func (r *rights) optionally(p *participant.Participant, fn func() error) {
	p.Extension().OnAllOptional([]topics.Hop{r.other}, func(context.Context, pgx.Tx, []participant.Taken) error { return fn() })
}

// TestAnOptionalTopicThatMayNotBeReadIsLeftOut: the member may see the topic, but not read it, from the beginning or later on.
func TestAnOptionalTopicThatMayNotBeReadIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newRights(t)
	var log safeBuffer
	p := r.new(service(&log))
	participant.Handle(p, count)
	came := make(chan struct{}, 10)
	r.optionally(p, func() error { came <- struct{}{}; return nil })
	r.start(p)
	const leftOut = "topics that only saga definitions of other versions read are not consumed"
	left := func(n int) func() bool { return func() bool { return strings.Count(log.String(), leftOut) == n } }
	waitFor(t, "the line about the topic", left(1))
	r.send(r.command("a", Count{N: 1}), r.otherEvent())
	r.waitCount(1, "SELECT count(*) FROM done")
	require.NoError(t, p.Ready())

	r.mayRead(true)
	<-came
	r.mayRead(false)
	waitFor(t, "the line about the topic again", left(2))
	r.send(r.command("a", Count{N: 2}), r.otherEvent())
	r.waitCount(2, "SELECT count(*) FROM done")
	r.mayRead(true)
	<-came
}

// TestATopicThatMayNotBeReadIsNamed: the topic is not optional.
func TestATopicThatMayNotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	r := newRights(t)
	var log safeBuffer
	p := r.new(service(&log))
	participant.On(p, r.other, func(context.Context, pgx.Tx, participant.Event[Count]) error { return nil })
	r.start(p)
	waitFor(t, "the line with the right", func() bool {
		return strings.Contains(log.String(), "this client may not read the topic: kafka-acls --add --allow-principal User:… --operation read --topic "+r.other.Events())
	})
}

// TestDeadlinesWaitForTheMessagesOfATopicThatIsLeftOut: the group has consumed the topic before. A message in it may be the one that a deadline
// reports as missing.
func TestDeadlinesWaitForTheMessagesOfATopicThatIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newRights(t)
	r.mayRead(true)
	var handled atomic.Int32
	begin := func(log *safeBuffer) (p *participant.Participant, stop func()) {
		p = r.new(service(log))
		p.BacklogLimit(time.Hour)
		participant.OnDeadline(p, overdueName, overdue)
		p.Extension().FireAfterBacklog(overdueName)
		r.optionally(p, func() error { handled.Add(1); return nil })
		return p, r.start(p)
	}
	_, stop := begin(new(safeBuffer))
	r.send(r.otherEvent())
	r.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 0", r.other.Events())
	stop()
	r.mayRead(false)
	r.send(r.otherEvent())
	var log safeBuffer
	p, _ := begin(&log)
	require.NoError(t, r.schedule(p, participant.Deadline{Name: overdueName, Key: "b", Body: Overdue{N: 1}, At: time.Now().Add(-time.Hour)}))
	const fired = "SELECT count(*) FROM troupe.deadlines WHERE fired_at IS NOT NULL"
	waitFor(t, "the deadline, or the line that it waits", func() bool {
		return r.count(fired) > 0 || strings.Contains(log.String(), "deadlines that report missing messages wait")
	})
	require.Zero(t, r.count(fired), "the message that came before is not handled")
	r.mayRead(true)
	r.fired(1)
	require.EqualValues(t, 2, handled.Load())
}

// TestHeldMessagesOfATopicThatIsLeftOutAreLogged: they are tried again once the topic may be read.
func TestHeldMessagesOfATopicThatIsLeftOutAreLogged(t *testing.T) {
	t.Parallel()
	r := newRights(t)
	r.mayRead(true)
	var log safeBuffer
	begin := func() (stop func()) {
		p := r.new(service(&log), holdLong)
		participant.Handle(p, count)
		r.optionally(p, func() error { return errors.New("refused") })
		return r.start(p)
	}
	stop := begin()
	r.send(r.otherEvent())
	r.waitCount(1, "SELECT count(*) FROM troupe.held")
	stop()
	r.mayRead(false)
	begin()
	waitFor(t, "the line", func() bool { return strings.Contains(log.String(), "messages are held of a topic") })
	require.Contains(t, log.String(), "they are tried again once it exists and this client may read it")
	require.NotContains(t, log.String(), "register its handler again")
}
