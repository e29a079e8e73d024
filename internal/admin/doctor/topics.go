package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/troupe-go/troupe/topics"
)

// shortest is the retention below which a topic is reported: a consumer may be down for a day.
const shortest = 24 * time.Hour

// topicFaults collects faults of topics. Topics with the same fault are reported together.
type topicFaults struct {
	order []topicFault
	of    map[topicFault][]string
}

type topicFault struct {
	level         Level
	found, remedy string // the remedy has %s for the topic
}

func (f *topicFaults) add(topic string, fault topicFault) {
	if f.of == nil {
		f.of = make(map[topicFault][]string)
	}
	if f.of[fault] == nil {
		f.order = append(f.order, fault)
	}
	f.of[fault] = append(f.of[fault], topic)
}

func (f *topicFaults) warn(topic, found, remedy string) {
	f.add(topic, topicFault{Warning, found, remedy})
}
func (f *topicFaults) fail(topic, found, remedy string) {
	f.add(topic, topicFault{Failure, found, remedy})
}

func (e *examination) topics(ctx context.Context, admin *kadm.Client, brokers int) {
	there, err := e.topicsThere(ctx, admin)
	if err != nil {
		e.Fail("topics", err.Error(), "allow this client to describe topics; else see the brokers' logs")
		return
	}
	wanted := e.wantedTopics(there)
	if len(wanted) == 0 {
		e.noTopics()
		return
	}
	var faults topicFaults
	var good []string
	for _, name := range wanted {
		d, asked := there[name]
		switch {
		case !asked || errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			e.missingTopic(&faults, name)
		case d.Err != nil:
			faults.fail(name, d.Err.Error(), "allow this client to describe and use %s")
		default:
			good = append(good, name)
			e.mayUse(&faults, d)
		}
	}
	configs, err := admin.DescribeTopicConfigs(ctx, good...)
	if err != nil && len(good) > 0 {
		e.Warn("topics", "their settings cannot be read: "+err.Error(), "allow this client DescribeConfigs on them")
	}
	settings := make(map[string]map[string]string)
	for _, c := range configs {
		settings[c.Name] = make(map[string]string)
		for _, s := range c.Configs {
			if s.Value != nil {
				settings[c.Name][s.Key] = *s.Value
			}
		}
	}
	for _, name := range good {
		replicasOf(&faults, there[name], settings[name], brokers)
		if _, err := topics.Parse(name); err == nil { // other programs decide on the settings of their topics
			keeping(&faults, name, settings[name])
		}
	}
	e.tellTopics(&faults, there, wanted, good)
}

// topicsThere returns the named topics that exist, and all topics if a flow is examined.
func (e *examination) topicsThere(ctx context.Context, admin *kadm.Client) (kadm.TopicDetails, error) {
	ctx = kadm.WithAuthorizedOps(ctx)
	there := make(kadm.TopicDetails)
	if e.Flow != "" {
		all, err := admin.ListTopicsWithInternal(ctx)
		if err != nil {
			return nil, err
		}
		there = all
	}
	others := slices.DeleteFunc(e.namedTopics(), there.Has)
	if len(others) == 0 {
		return there, nil
	}
	named, err := admin.ListTopicsWithInternal(ctx, others...)
	maps.Copy(there, named)
	return there, err
}

// namedTopics returns the topics that should exist: the topics of Hops, and the topics of rows that wait.
func (e *examination) namedTopics() []string {
	names := slices.Concat(e.waiting, e.Topics)
	for _, h := range e.Hops {
		names = append(names, h.Commands(), h.Events(), h.DeadLetters())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (e *examination) wantedTopics(there kadm.TopicDetails) []string {
	names := e.namedTopics()
	if e.Flow != "" {
		for name := range there {
			if strings.HasPrefix(name, e.Flow+".") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (e *examination) noTopics() {
	switch {
	case e.Flow != "":
		e.Warn("topics", "none begins with "+e.Flow+".", "start a participant of the flow, which makes the topics of its hop; or correct the flow's name")
	case e.Database != nil && e.has(Relay):
		e.Ok("topics", "no rows wait")
	}
}

func (e *examination) missingTopic(faults *topicFaults, name string) {
	if slices.Contains(e.waiting, name) {
		faults.fail(name, "does not exist, and rows wait for it",
			"start the participant that provisions it, or create it; after 60 s its rows are parked")
		return
	}
	if slices.Contains(e.Topics, name) {
		faults.fail(name, "does not exist, and rows of the table go there",
			"the relay creates no topic: kafka-topics --create --topic %s; after 60 s its rows are parked")
		return
	}
	faults.warn(name, "does not exist", "start its participant, which makes it where it may; or kafka-topics --create --topic %s")
}

// mayUse checks the rights of this client, as the broker reports them. A broker without an authorizer allows everything; an old
// one reports nothing.
func (e *examination) mayUse(faults *topicFaults, d kadm.TopicDetail) {
	if len(d.AuthorizedOperations) == 0 {
		return
	}
	var wanted []kadm.ACLOperation
	commands := slices.ContainsFunc(e.Hops, func(h topics.Hop) bool { return h.Commands() == d.Topic })
	if e.has(Participant) && commands {
		wanted = append(wanted, kadm.OpRead)
	}
	written := slices.Contains(e.waiting, d.Topic) || slices.Contains(e.Topics, d.Topic) ||
		slices.ContainsFunc(e.Hops, func(h topics.Hop) bool { return h.Events() == d.Topic || h.DeadLetters() == d.Topic })
	if (e.has(Relay) || e.has(MappedRelay)) && written {
		wanted = append(wanted, kadm.OpWrite)
	}
	for _, op := range wanted {
		if !slices.Contains(d.AuthorizedOperations, op) && !slices.Contains(d.AuthorizedOperations, kadm.OpAll) {
			word := strings.ToLower(op.String())
			faults.fail(d.Topic, "this client may not "+word+" it",
				"kafka-acls --add --allow-principal User:… --operation "+word+" --topic %s")
		}
	}
}

// replicasOf checks whether an acknowledged message survives the loss of a broker, and whether one can be written now.
func replicasOf(faults *topicFaults, d kadm.TopicDetail, settings map[string]string, brokers int) {
	replicas := d.Partitions.NumReplicas()
	least, err := strconv.Atoi(settings["min.insync.replicas"])
	if err != nil {
		least = 1 // Kafka's own default; it is all there is if the settings cannot be read
	}
	const alter = "kafka-configs --alter --topic %s --add-config "
	insync, led := replicas, true
	for _, p := range d.Partitions {
		insync, led = min(insync, len(p.ISR)), led && p.Leader >= 0
	}
	switch {
	case !led:
		faults.fail(d.Topic, "has a partition without a leader: nothing can be written or read there", "bring its brokers back; kafka-topics --describe --topic %s")
	case least > replicas:
		faults.fail(d.Topic, fmt.Sprintf("wants min.insync.replicas %d and has %d: nothing can be written", least, replicas),
			alter+"min.insync.replicas="+strconv.Itoa(max(replicas-1, 1)))
	case insync < least:
		faults.fail(d.Topic, fmt.Sprintf("has %d in-sync replicas of the %d that it wants: nothing can be written", insync, least),
			"bring its brokers back; kafka-topics --describe --topic %s")
	case insync < replicas:
		faults.warn(d.Topic, fmt.Sprintf("has %d in-sync replicas of %d", insync, replicas), "bring its brokers back; kafka-topics --describe --topic %s")
	}
	switch {
	case replicas == 1 && brokers > 1:
		faults.warn(d.Topic, fmt.Sprintf("has 1 replica on %d brokers: a broker that is lost takes its messages with it", brokers),
			"kafka-reassign-partitions for %s, with 3 replicas")
	case replicas > 1 && least == 1:
		faults.warn(d.Topic, "has min.insync.replicas 1: a message may be acknowledged that one broker alone has", alter+"min.insync.replicas=2")
	case replicas > 1 && least == replicas:
		faults.warn(d.Topic, fmt.Sprintf("wants min.insync.replicas %d of %d: without one broker nothing can be written", least, replicas),
			alter+"min.insync.replicas="+strconv.Itoa(replicas-1))
	}
	if settings["unclean.leader.election.enable"] == "true" {
		faults.warn(d.Topic, "may elect a leader that lacks messages which were acknowledged", alter+"unclean.leader.election.enable=false")
	}
}

// keeping checks whether messages are kept until they have been read.
func keeping(faults *topicFaults, name string, settings map[string]string) {
	const alter = "kafka-configs --alter --topic %s --add-config "
	if strings.Contains(settings["cleanup.policy"], "compact") {
		faults.fail(name, "is compacted: a later message of a key removes the earlier ones, read or not", alter+"cleanup.policy=delete")
	}
	ms, err := strconv.ParseInt(settings["retention.ms"], 10, 64)
	if err == nil && ms >= 0 && ms < shortest.Milliseconds() {
		faults.warn(name, fmt.Sprintf("keeps messages for %s, read or not", time.Duration(ms)*time.Millisecond), alter+"retention.ms=604800000")
	}
	if bytes, err := strconv.ParseInt(settings["retention.bytes"], 10, 64); err == nil && bytes > 0 {
		faults.warn(name, fmt.Sprintf("keeps at most %d bytes of a partition, read or not", bytes), alter+"retention.bytes=-1")
	}
}

func (e *examination) tellTopics(faults *topicFaults, there kadm.TopicDetails, wanted, good []string) {
	if len(good) > 0 {
		of := "that rows wait for"
		if len(e.Topics) > 0 {
			of = "that rows of the table go to"
		}
		if e.Flow != "" || len(e.Hops) > 0 {
			of = "looked at"
		}
		e.Ok("topics", fmt.Sprintf("%d of %d %s exist, %s", len(good), len(wanted), of, spread(there, good)))
	}
	for _, f := range faults.order {
		names := faults.of[f]
		shown := join(names)
		if len(names) > 4 {
			shown = fmt.Sprintf("%s and %d more", join(names[:3]), len(names)-3)
		}
		remedy := f.remedy
		if strings.Contains(remedy, "%s") {
			remedy = fmt.Sprintf(remedy, names[0])
		}
		if len(names) > 1 {
			remedy += " (and so the others)"
		}
		e.Add(Finding{"topics", f.level, shown + ": " + f.found, remedy})
	}
}

// spread describes the number of partitions: "4 partitions each", "1 to 6 partitions".
func spread(there kadm.TopicDetails, names []string) string {
	least, most := len(there[names[0]].Partitions), 0
	for _, name := range names {
		n := len(there[name].Partitions)
		least, most = min(least, n), max(most, n)
	}
	if least == most {
		return counted(most, "partition") + pick(len(names), "", " each")
	}
	return fmt.Sprintf("%d to %d partitions", least, most)
}
