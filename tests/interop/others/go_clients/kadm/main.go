// franz-go and its kadm at a broker without SASL: HOST:PORT. One line for each call, with what is the same on every broker.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const topic, group, transactional, ofKill = "kadm-a", "kadm-g", "kadm-t", "kadm-killed"

// code tells an error by Kafka's name: its words are each broker's own.
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

var patience context.Context

func topics(admin *kadm.Client) {
	created := must(admin.CreateTopics(patience, 3, 1, map[string]*string{"retention.ms": text("100000")}, topic, "kadm bad"))
	for _, each := range created.Sorted() {
		say("CreateTopics", each.Topic, each.Err)
	}
	for _, each := range must(admin.UpdatePartitions(patience, 4, topic, "kadm-none")).Sorted() {
		say("UpdatePartitions", each.Topic, each.Err)
	}
	checked := must(admin.ValidateCreateTopics(patience, 1, 2, nil, "kadm-c"))
	say("ValidateCreateTopics", nil, checked["kadm-c"].Err)
}

func moves(admin *kadm.Client) {
	var moved kadm.AlterPartitionAssignmentsReq
	moved.Assign(topic, 0, []int32{1})
	moved.Assign(topic, 1, []int32{1, 2})
	moved.CancelAssign(topic, 2)
	moved.Assign(topic, 99, []int32{1})
	moved.Assign("kadm-none", 0, []int32{1})
	for _, each := range must(admin.AlterPartitionAssignments(patience, moved)).Sorted() {
		say("AlterPartitionAssignments", []any{each.Topic, each.Partition}, each.Err)
	}
	var of kadm.TopicsSet
	of.Add(topic, 0, 1)
	for _, topics := range []kadm.TopicsSet{of, nil} {
		listed, err := admin.ListPartitionReassignments(patience, topics)
		say("ListPartitionReassignments", listed.Sorted(), err)
	}
	of.Add(topic, 99)
	of.Add("kadm-none", 0)
	for _, how := range []kadm.ElectLeadersHow{kadm.ElectPreferredReplica, kadm.ElectLiveReplica} {
		elected := must(admin.ElectLeaders(patience, how, of))
		for _, of := range of.Sorted() {
			for _, partition := range of.Partitions {
				say("ElectLeaders", []any{how, of.Topic, partition}, elected[of.Topic][partition].Err)
			}
		}
	}
	elected, err := admin.ElectLeaders(patience, kadm.ElectPreferredReplica, nil)
	found := 0
	for _, partitions := range elected {
		found += len(partitions)
	}
	say("ElectLeaders of all", found, err)
}

func configs(admin *kadm.Client) {
	show := func(call, awaited string, describe func() kadm.ResourceConfigs) {
		var set []string
		eventually(func() bool {
			described := describe()
			set = nil
			for _, entry := range described[0].Configs {
				if entry.Source != kmsg.ConfigSourceDefaultConfig && entry.Source != kmsg.ConfigSourceStaticBrokerConfig {
					set = append(set, fmt.Sprint(entry.Key, "=", entry.MaybeValue(), " ", entry.Source))
				}
			}
			sort.Strings(set)
			return strings.Contains(strings.Join(set, " "), awaited)
		})
		say(call, set, nil)
	}
	ofTopic := func() kadm.ResourceConfigs { return must(admin.DescribeTopicConfigs(patience, topic)) }
	show("DescribeTopicConfigs", "retention.ms=100000", ofTopic)
	say("AlterTopicConfigs", nil, must(admin.AlterTopicConfigs(patience,
		[]kadm.AlterConfig{{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: text("compact")}}, topic))[0].Err)
	show("DescribeTopicConfigs, changed", "cleanup.policy=delete,compact", ofTopic)
	say("AlterTopicConfigsState", nil, must(admin.AlterTopicConfigsState(patience,
		[]kadm.AlterConfig{{Name: "segment.ms", Value: text("100000")}}, topic))[0].Err)
	show("DescribeTopicConfigs, replaced", "segment.ms=100000", ofTopic)
	say("AlterTopicConfigs, unknown", nil, must(admin.AlterTopicConfigs(patience,
		[]kadm.AlterConfig{{Name: "nonsense", Value: text("1")}}, topic))[0].Err)
	say("AlterBrokerConfigs", nil, must(admin.AlterBrokerConfigs(patience,
		[]kadm.AlterConfig{{Name: "log.cleaner.threads", Value: text("2")}}, 1))[0].Err)
	show("DescribeBrokerConfigs", "log.cleaner.threads=2", func() kadm.ResourceConfigs {
		return must(admin.DescribeBrokerConfigs(patience, 1))
	})
	show("DescribeBrokerConfigs of all", "", func() kadm.ResourceConfigs { return must(admin.DescribeBrokerConfigs(patience)) })
	say("AlterBrokerConfigs, removed", nil, must(admin.AlterBrokerConfigs(patience,
		[]kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "log.cleaner.threads"}}, 1))[0].Err)
}

func resources(admin *kadm.Client, client *kgo.Client) {
	change := func(value *string) {
		request := kmsg.NewPtrIncrementalAlterConfigsRequest()
		one := kmsg.NewIncrementalAlterConfigsRequestResource()
		one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeClientMetrics, "kadm-m"
		entry := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		entry.Name, entry.Value = "interval.ms", value
		if value == nil {
			entry.Op = kmsg.IncrementalAlterConfigOpDelete
		}
		one.Configs = append(one.Configs, entry)
		request.Resources = append(request.Resources, one)
		answer := must(request.RequestWith(patience, client))
		say("IncrementalAlterConfigs of client metrics", nil, kerr.ErrorForCode(answer.Resources[0].ErrorCode))
	}
	change(text("5000"))
	eventually(func() bool {
		return len(must(admin.ListConfigResources(patience, kadm.ConfigResourceClientMetrics)).Resources) > 0
	})
	for _, kind := range []kadm.ConfigResourceType{kadm.ConfigResourceClientMetrics, kadm.ConfigResourceBroker, kadm.ConfigResourceBrokerLogger, kadm.ConfigResourceTopic} {
		listed, err := admin.ListConfigResources(patience, kind)
		for _, each := range listed.Sorted() {
			if kind != kadm.ConfigResourceTopic || each.Name == topic {
				say("ListConfigResources", []any{kind, each.Name}, err)
			}
		}
	}
	_, err := admin.ListConfigResources(patience, kadm.ConfigResourceType(99))
	say("ListConfigResources, unknown", nil, err)
	change(nil)
	pages := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, name := range []string{topic, "kadm-none"} {
		one := kmsg.NewDescribeTopicPartitionsRequestTopic()
		one.Topic = name
		pages.Topics = append(pages.Topics, one)
	}
	pages.ResponsePartitionLimit = 3
	for page := 0; page < 9; page++ {
		answer := must(pages.RequestWith(patience, client))
		for _, each := range answer.Topics {
			say("DescribeTopicPartitions", []any{*each.Topic, len(each.Partitions)}, kerr.ErrorForCode(each.ErrorCode))
		}
		if answer.NextCursor == nil {
			break
		}
		say("DescribeTopicPartitions, next", []any{answer.NextCursor.Topic, answer.NextCursor.Partition}, nil)
		cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
		cursor.Topic, cursor.Partition = answer.NextCursor.Topic, answer.NextCursor.Partition
		pages.Cursor = &cursor
	}
}

func quorum(admin *kadm.Client, client *kgo.Client) {
	leave := kmsg.NewPtrUnregisterBrokerRequest()
	leave.BrokerID = 7
	say("UnregisterBroker", nil, kerr.ErrorForCode(must(leave.RequestWith(patience, client)).ErrorCode))
	join := kmsg.NewPtrAddRaftVoterRequest()
	join.VoterID, join.VoterDirectoryID[3], join.TimeoutMillis = 3, 9, 5000
	listener := kmsg.NewAddRaftVoterRequestListener()
	listener.Name, listener.Host, listener.Port = "CONTROLLER", "localhost", 9
	join.Listeners = append(join.Listeners, listener)
	say("AddRaftVoter", nil, kerr.ErrorForCode(must(join.RequestWith(patience, client)).ErrorCode))
	gone := kmsg.NewPtrRemoveRaftVoterRequest()
	gone.VoterID, gone.VoterDirectoryID[3] = 3, 9
	say("RemoveRaftVoter", nil, kerr.ErrorForCode(must(gone.RequestWith(patience, client)).ErrorCode))
	described := kmsg.NewPtrDescribeQuorumRequest()
	part := kmsg.NewDescribeQuorumRequestTopic()
	part.Topic, part.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{}}
	described.Topics = append(described.Topics, part)
	answer, err := described.RequestWith(patience, client)
	if err != nil {
		say("DescribeQuorum", nil, err)
	} else {
		found := answer.Topics[0].Partitions[0]
		say("DescribeQuorum", []any{found.LeaderID, len(found.CurrentVoters), len(found.Observers)}, kerr.ErrorForCode(found.ErrorCode))
	}
	versions := must(kmsg.NewPtrApiVersionsRequest().RequestWith(patience, client))
	sort.Slice(versions.FinalizedFeatures, func(i, j int) bool {
		return versions.FinalizedFeatures[i].Name < versions.FinalizedFeatures[j].Name
	})
	for _, each := range versions.FinalizedFeatures {
		if each.Name == "metadata.version" || each.Name == "transaction.version" || each.Name == "group.version" {
			say("ApiVersions, finalized", []any{each.Name, each.MaxVersionLevel}, nil)
		}
	}
	updated, err := admin.UpdateFeatures(patience, true, kadm.FeatureUpdate{Feature: "nonsense", MaxVersionLevel: 1, UpgradeType: 1})
	say("UpdateFeatures", updated.Sorted(), err)
}

func records(address string, admin *kadm.Client) {
	for index, commit := range []bool{true, false} {
		producer := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.TransactionalID(transactional), kgo.RecordPartitioner(kgo.ManualPartitioner())))
		say("BeginTransaction", nil, producer.BeginTransaction())
		for partition := range int32(4) {
			record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte{byte(index)}}
			say("ProduceSync", partition, producer.ProduceSync(patience, record).FirstErr())
		}
		say("EndTransaction", commit, producer.EndTransaction(patience, kgo.TransactionEndTry(commit)))
		producer.Close()
	}
	var described kadm.DescribedTransactions
	eventually(func() bool {
		described = must(admin.DescribeTransactions(patience, transactional, "kadm-none"))
		return described[transactional].State == "CompleteAbort"
	})
	for _, each := range described.Sorted() {
		say("DescribeTransactions", []any{each.TxnID, each.State, each.TimeoutMillis}, each.Err)
	}
	for _, each := range must(admin.ListTransactions(patience, nil, nil)).Sorted() {
		if each.TxnID == transactional {
			say("ListTransactions", []any{each.TxnID, each.State}, nil)
		}
	}
	var of kadm.TopicsSet
	of.Add(topic, 0)
	for _, each := range must(admin.DescribeProducers(patience, of)).SortedProducers() {
		say("DescribeProducers", []any{each.Topic, each.LastSequence, each.CurrentTxnStartOffset}, nil)
	}
	for _, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){
		admin.ListStartOffsets, admin.ListEndOffsets, admin.ListCommittedOffsets, admin.ListMaxTimestampOffsets} {
		one, _ := must(list(patience, topic)).Lookup(topic, 0)
		say("List...Offsets", []any{one.Offset, one.LeaderEpoch}, one.Err)
	}
	var until kadm.Offsets
	until.AddOffset(topic, 0, 1, -1)
	until.AddOffset(topic, 1, 100, -1)
	for _, each := range must(admin.DeleteRecords(patience, until)).Sorted() {
		say("DeleteRecords", []any{each.Partition, each.LowWatermark}, each.Err)
	}
}

func groups(address string, admin *kadm.Client) {
	for _, name := range []string{group, group + "-848"} {
		options := []kgo.Opt{kgo.SeedBrokers(address), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(name),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted())}
		working := patience
		if name != group {
			working = context.WithValue(patience, "opt_in_kafka_next_gen_balancer_beta", true)
		}
		member := must(kgo.NewClient(append(options, kgo.WithContext(working))...))
		found := 0
		for found < 3 {
			found += len(member.PollFetches(patience).Records())
		}
		say("PollFetches", found, member.CommitUncommittedOffsets(patience))
		for _, each := range must(admin.DescribeGroups(patience, name)).Sorted() {
			say("DescribeGroups", []any{each.Group, each.State, each.ProtocolType, each.Protocol, len(each.Members)}, each.Err)
		}
		refused, _ := admin.DeleteGroup(patience, name)
		say("DeleteGroup, with members", nil, refused.Err)
		member.Close()
		for _, each := range must(admin.FetchOffsets(patience, name)).Sorted() {
			say("FetchOffsets", []any{each.Partition, each.At}, each.Err)
		}
		for _, each := range must(admin.Lag(patience, name)).Sorted() {
			say("Lag", []any{each.State, each.Lag.Total()}, each.Error())
		}
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 2, 1, -1)
		say("CommitOffsets", nil, admin.CommitAllOffsets(patience, name, offsets))
		var of kadm.TopicsSet
		of.Add(topic, 2, 99)
		deleted := must(admin.DeleteOffsets(patience, name, of))
		say("DeleteOffsets", nil, deleted[topic][2])
		say("DeleteOffsets of none", nil, deleted[topic][99])
		gone, _ := admin.DeleteGroup(patience, name)
		say("DeleteGroup", nil, gone.Err)
	}
}

// restarts sends to a broker that is killed meanwhile, and has a member of a group read along.
func restarts(address string, admin *kadm.Client) {
	must(admin.CreateTopics(patience, 1, 1, nil, ofKill))
	witness := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumerGroup("kadm-w"), kgo.ConsumeTopics(ofKill),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	defer witness.Close()
	seen, all := map[string]bool{}, make(chan int, 1)
	found := make(chan struct{})
	go func() {
		wanted := -1
		for len(seen) != wanted {
			wait, end := context.WithTimeout(patience, time.Second)
			witness.PollFetches(wait).EachRecord(func(record *kgo.Record) { seen[string(record.Value)] = true })
			end()
			select {
			case wanted = <-all:
			case <-patience.Done():
				wanted = len(seen)
			default:
			}
		}
		close(found)
	}()
	producer := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(ofKill)))
	defer producer.Close()
	refused := make(chan error, 100_000)
	sent := killed(func(value string) {
		producer.Produce(patience, kgo.StringRecord(value), func(_ *kgo.Record, err error) {
			if err != nil {
				refused <- err
			}
		})
	})
	say("Killed: Flush", nil, producer.Flush(patience))
	all <- sent
	<-found
	say("Killed: refused, not seen by the member", []int{len(refused), sent - len(seen)}, nil)
	reader := must(kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(ofKill),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	defer reader.Close()
	ends := must(admin.ListEndOffsets(patience, ofKill))
	end, _ := ends.Lookup(ofKill, 0)
	var values []string
	for int64(len(values)) < end.Offset && patience.Err() == nil {
		reader.PollFetches(patience).EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	say("Killed: lost, doubled", lostAndDoubled(sent, values), nil)
	must(admin.DeleteTopics(patience, ofKill))
}

func main() {
	var end func()
	patience, end = context.WithTimeout(context.Background(), 200*time.Second)
	defer end()
	address := os.Args[1]
	client := must(kgo.NewClient(kgo.SeedBrokers(address)))
	admin := kadm.NewClient(client)
	for _, each := range must(admin.ApiVersions(patience)) {
		fmt.Println("VersionGuess: " + each.VersionGuess())
	}
	topics(admin)
	moves(admin)
	configs(admin)
	resources(admin, client)
	quorum(admin, client)
	records(address, admin)
	groups(address, admin)
	restarts(address, admin)
	deleted := must(admin.DeleteTopics(patience, topic, "kadm-none"))
	say("DeleteTopics", nil, deleted[topic].Err)
	say("DeleteTopics of none", nil, deleted["kadm-none"].Err)
}
