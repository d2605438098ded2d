// franz-go's share consumer: HOST:PORT. One line for each scenario, the same on every broker; `wanted: TEXT` says
// that the broker is to be killed and started again, and the answer is a line of standard input.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lock is the time for which a group's records are locked; the broker must allow it.
const lock = 5 * time.Second

var patience context.Context

func code(err error) string {
	var named *kerr.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &named):
		return named.Message
	default:
		return "error without a number"
	}
}

func check(err error) { must(0, err) }

// world is a topic and a group that reads it from its beginning.
type world struct {
	address, name string
	client        *kgo.Client
}

func newWorld(address, name string, records int) *world {
	made := &world{address, fmt.Sprintf("go-%s-%d", name, time.Now().UnixNano()), nil}
	made.client = must(kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(made.name),
		kgo.RecordPartitioner(kgo.ManualPartitioner())))
	created := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = made.name, 2, 1
	created.Topics = append(created.Topics, topic)
	check(kerr.ErrorForCode(must(created.RequestWith(patience, made.client)).Topics[0].ErrorCode))
	made.set("share.auto.offset.reset", "earliest")
	made.set("share.record.lock.duration.ms", strconv.Itoa(int(lock.Milliseconds())))
	made.produce(0, records)
	return made
}

// set changes a setting of the group and waits until the broker uses it.
func (w *world) set(key, value string) {
	change := kmsg.NewPtrIncrementalAlterConfigsRequest()
	changed := kmsg.NewIncrementalAlterConfigsRequestResource()
	changed.ResourceType, changed.ResourceName = kmsg.ConfigResourceTypeGroupConfig, w.name
	entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	entry.Name, entry.Value = key, text(value)
	changed.Configs = append(changed.Configs, entry)
	change.Resources = append(change.Resources, changed)
	check(kerr.ErrorForCode(must(change.RequestWith(patience, w.client)).Resources[0].ErrorCode))

	question := kmsg.NewPtrDescribeConfigsRequest()
	asked := kmsg.NewDescribeConfigsRequestResource()
	asked.ResourceType, asked.ResourceName, asked.ConfigNames = changed.ResourceType, w.name, []string{key}
	question.Resources = append(question.Resources, asked)
	eventually(func() bool {
		found := must(question.RequestWith(patience, w.client)).Resources[0].Configs
		return len(found) == 1 && found[0].Value != nil && *found[0].Value == value
	})
}

// produce sends records whose values are numbers, to both partitions in turns.
func (w *world) produce(from, to int) {
	var records []*kgo.Record
	for number := from; number < to; number++ {
		records = append(records, &kgo.Record{Partition: int32(number % 2), Value: []byte(strconv.Itoa(number))})
	}
	check(w.client.ProduceSync(patience, records...).FirstErr())
}

// member is a share consumer, and the errors that its acknowledgements met since the last flush.
type member struct {
	*kgo.Client
	mutex  sync.Mutex
	errors []string
}

func (w *world) member() *member {
	made := &member{}
	made.Client = must(kgo.NewClient(kgo.SeedBrokers(w.address), kgo.ShareGroup(w.name), kgo.ConsumeTopics(w.name),
		kgo.ShareMaxRecords(20), kgo.ShareMaxRecordsStrict(), kgo.ShareAckCallback(made.answered)))
	return made
}

func (m *member) answered(_ *kgo.Client, results kgo.ShareAckResults) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, each := range results {
		if each.Err != nil {
			m.errors = append(m.errors, code(each.Err))
		}
	}
}

// flushed sends all acknowledgements and returns the errors that they met.
func (m *member) flushed() []string {
	short, cancel := context.WithTimeout(patience, 10*time.Second)
	defer cancel()
	err := m.FlushAcks(short)
	check(patience.Err())
	m.mutex.Lock()
	defer m.mutex.Unlock()
	found := m.errors
	m.errors = nil
	if err != nil {
		found = append(found, "no answer")
	}
	return found
}

// poll returns what comes within a second.
func (m *member) poll() []*kgo.Record {
	short, cancel := context.WithTimeout(patience, time.Second)
	defer cancel()
	check(patience.Err())
	return m.PollRecords(short, 20).Records()
}

func number(record *kgo.Record) int { return must(strconv.Atoi(string(record.Value))) }

// outcomes: accepted, released, rejected and renewed records, and those that nobody accepts.
func outcomes(address string) {
	w := newWorld(address, "outcomes", 100)
	m := w.member()
	deliveries, ended, failed := map[int][]int32{}, 0, []string{}
	for ended < 100 {
		records := m.poll()
		for _, each := range records {
			value := number(each)
			deliveries[value] = append(deliveries[value], each.DeliveryCount())
			switch {
			case value%10 == 3 && each.DeliveryCount() < 3, value == 44 && each.DeliveryCount() < 5:
				each.Ack(kgo.AckRelease)
				continue
			case value%10 == 5:
				each.Ack(kgo.AckRenew)
				failed = append(failed, m.flushed()...)
				each.Ack(kgo.AckAccept)
			case value%10 == 7:
				each.Ack(kgo.AckReject)
			case value == 44:
				each.Ack(kgo.AckRelease)
			default:
				each.Ack(kgo.AckAccept)
			}
			ended++
		}
		failed = append(failed, m.flushed()...)
	}
	again := len(m.poll())
	m.Close()
	say("released twice", deliveries[13], nil)
	say("always released", deliveries[44], nil)
	say("rejected", deliveries[17], nil)
	say("renewed and accepted", deliveries[25], nil)
	say("errors, and records after the last", []any{failed, again}, nil)
}

// renewals: a member keeps records beyond their lock, and another one gets the rest.
func renewals(address string) {
	w := newWorld(address, "renewals", 10)
	first := w.member()
	var held []*kgo.Record
	for len(held) == 0 {
		held = first.poll()
	}
	second := w.member()
	seen := map[int]int32{}
	failed := []string{}
	for end := time.Now().Add(2 * lock); time.Now().Before(end); {
		for _, each := range held {
			each.Ack(kgo.AckRenew)
		}
		failed = append(failed, first.flushed()...)
		for _, each := range second.poll() {
			seen[number(each)] = each.DeliveryCount()
		}
		second.MarkAcks(kgo.AckAccept)
		failed = append(failed, second.flushed()...)
	}
	for _, each := range held {
		each.Ack(kgo.AckAccept)
		if count, known := seen[number(each)]; known {
			failed = append(failed, fmt.Sprintf("%d was delivered to the other member, delivery %d", number(each), count))
		}
	}
	failed = append(failed, first.flushed()...)
	for len(held)+len(seen) < 10 {
		for _, each := range append(second.poll(), first.poll()...) {
			seen[number(each)] = each.DeliveryCount()
		}
	}
	first.Close()
	second.Close()
	say("renewed beyond the lock", failed, nil)
}

// closed: what a member has not acknowledged when it leaves goes to another one.
func closed(address string) {
	w := newWorld(address, "closed", 20)
	first := w.member()
	held := 0
	for held == 0 {
		held = len(first.poll())
	}
	first.Close()
	second := w.member()
	counts := map[int32]int{}
	for total := 0; total < 20; {
		for _, each := range second.poll() {
			counts[each.DeliveryCount()]++
			total++
		}
		second.MarkAcks(kgo.AckAccept)
	}
	failed := second.flushed()
	second.Close()
	say("of a member that left", []any{counts[1]+counts[2] == 20, counts[2] == held, failed}, nil)
}

// finished is true if every record of the topic has ended for the broker.
func (w *world) finished() bool {
	question := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	asked := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	asked.GroupID = w.name
	question.Groups = append(question.Groups, asked)
	answer, err := question.RequestWith(patience, w.client)
	if err != nil || len(answer.Groups[0].Topics) != 1 || len(answer.Groups[0].Topics[0].Partitions) != 2 {
		return false
	}
	partitions := answer.Groups[0].Topics[0].Partitions
	return partitions[0].Lag == 0 && partitions[1].Lag == 0
}

// queue is a group of several members that accept records.
type queue struct {
	mutex sync.Mutex
	// accepted has the records whose acknowledgements were confirmed, doubtful those of others: a broker that was
	// killed may have stored them and not answered.
	accepted, doubtful map[int]bool
	again              int
	served             []int
}

// took notes a delivery: nothing that was accepted may come again.
func (q *queue) took(batch []*kgo.Record) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for _, each := range batch {
		if q.accepted[number(each)] {
			q.again++
		}
	}
}

func (q *queue) acknowledged(member int, batch []*kgo.Record, confirmed bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for _, each := range batch {
		if confirmed {
			q.accepted[number(each)] = true
			delete(q.doubtful, number(each))
		} else {
			q.doubtful[number(each)] = true
		}
	}
	q.served[member] += len(batch)
}

func (q *queue) count() int {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return len(q.accepted) + len(q.doubtful)
}

// work has the members read until so many records have ended, and calls `halfway` when some have.
func (q *queue) work(w *world, members, records int, halfway func()) {
	var workers sync.WaitGroup
	q.accepted, q.doubtful, q.served = map[int]bool{}, map[int]bool{}, make([]int, members)
	for index := range members {
		workers.Go(func() {
			m := w.member()
			defer m.Close()
			for {
				batch := m.poll()
				if len(batch) == 0 {
					if q.count() == records && w.finished() {
						return
					}
					continue
				}
				q.took(batch)
				m.MarkAcks(kgo.AckAccept)
				q.acknowledged(index, batch, len(m.flushed()) == 0)
			}
		})
	}
	eventually(func() bool { return q.count() > 0 })
	halfway()
	workers.Wait()
}

func twoMembers(address string) {
	var q queue
	q.work(newWorld(address, "two", 1000), 2, 1000, func() {})
	sort.Ints(q.served)
	say("two members", []any{q.again, q.served[0] > 0, q.served[0] + q.served[1], len(q.doubtful)}, nil)
}

// restarted: the broker dies and comes back while two members work.
func restarted(address string) {
	var q queue
	w := newWorld(address, "restarted", 500)
	q.work(w, 2, 1000, func() {
		fmt.Println("wanted: another start of the broker")
		must(bufio.NewReader(os.Stdin).ReadString('\n'))
		w.produce(500, 1000)
	})
	say("a broker that was killed", []any{q.again, q.count()}, nil)
}

func main() {
	var cancel context.CancelFunc
	patience, cancel = context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for _, scenario := range []func(string){outcomes, renewals, closed, twoMembers, restarted} {
		scenario(os.Args[1])
	}
}
