// sarama at a broker without SASL: HOST:PORT. One line for each call, with what is the same on every broker.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const topic, second, group, transactional, user = "sarama-a", "sarama-b", "sarama-g", "sarama-t", "sarama-u"
const ofKill = "sarama-killed"

// code tells an error by Kafka's number: its words are each broker's own.
func code(err error) string {
	var number sarama.KError
	var ofTopic *sarama.TopicError
	var ofPartition *sarama.TopicPartitionError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &ofTopic):
		return fmt.Sprintf("error %d", ofTopic.Err)
	case errors.As(err, &ofPartition):
		return fmt.Sprintf("error %d", ofPartition.Err)
	case errors.As(err, &number):
		return fmt.Sprintf("error %d", number)
	default:
		return "error without a number"
	}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.ClientID = "sarama-program"
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Admin.Retry.Max = 0
	return config
}

func topics(admin sarama.ClusterAdmin) {
	one := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": text("100000")}}
	say("CreateTopic, checked", nil, admin.CreateTopic(topic, one, true))
	say("CreateTopic", nil, admin.CreateTopic(topic, one, false))
	say("CreateTopic again", nil, admin.CreateTopic(topic, one, false))
	say("CreateTopic, assigned", nil, admin.CreateTopic(second, &sarama.TopicDetail{NumPartitions: -1,
		ReplicationFactor: -1, ReplicaAssignment: map[int32][]int32{0: {1}, 1: {1}}}, false))
	say("CreateTopic, three replicas", nil, admin.CreateTopic("sarama-c", &sarama.TopicDetail{
		NumPartitions: 1, ReplicationFactor: 3}, false))
	eventually(func() bool { return len(must(admin.ListTopics())) >= 2 })
	all, err := admin.ListTopics()
	say("ListTopics", all[topic], err)
	described, err := admin.DescribeTopics([]string{topic, "sarama-none"})
	sort.Slice(described, func(i, j int) bool { return described[i].Name < described[j].Name })
	for _, each := range described {
		sort.Slice(each.Partitions, func(i, j int) bool { return each.Partitions[i].ID < each.Partitions[j].ID })
		for _, partition := range each.Partitions {
			say("DescribeTopics "+each.Name, []any{partition.ID, partition.Leader, partition.LeaderEpoch,
				partition.Replicas, partition.Isr, partition.OfflineReplicas}, partition.Err)
		}
		say("DescribeTopics "+each.Name, []any{int(each.Err), each.IsInternal, len(each.Partitions)}, err)
	}
	say("CreatePartitions", nil, admin.CreatePartitions(topic, 4, nil, false))
	say("CreatePartitions, fewer", nil, admin.CreatePartitions(topic, 2, nil, false))
	say("CreatePartitions, assigned", nil, admin.CreatePartitions(topic, 5, [][]int32{{7}}, false))
}

func moves(admin sarama.ClusterAdmin) {
	say("AlterPartitionReassignments", nil, admin.AlterPartitionReassignments(second, [][]int32{{1}, {1}}))
	say("AlterPartitionReassignments, end", nil, admin.AlterPartitionReassignments(second, [][]int32{nil, {1}}))
	say("AlterPartitionReassignments, two", nil, admin.AlterPartitionReassignments(second, [][]int32{{1, 2}}))
	say("AlterPartitionReassignments, none", nil, admin.AlterPartitionReassignments("sarama-none", [][]int32{{1}}))
	moving, err := admin.ListPartitionReassignments(second, []int32{0, 1})
	say("ListPartitionReassignments", moving, err)
	for _, kind := range []sarama.ElectionType{sarama.PreferredElection, sarama.UncleanElection} {
		elected, err := admin.ElectLeaders(kind, map[string][]int32{second: {0, 9}, "sarama-none": {0}})
		for _, place := range []struct {
			topic     string
			partition int32
		}{{second, 0}, {second, 9}, {"sarama-none", 0}} {
			result := elected[place.topic][place.partition]
			if result == nil {
				say("ElectLeaders", place.topic, err)
				continue
			}
			say(fmt.Sprint("ElectLeaders ", kind, place), int(result.ErrorCode), err)
		}
	}
}

func own(entries []sarama.ConfigEntry) (set []string) {
	for _, entry := range entries {
		if entry.Source == sarama.SourceTopic || entry.Source == sarama.SourceDynamicDefaultBroker {
			set = append(set, fmt.Sprint(entry.Name, "=", entry.Value, " ", entry.Source, " ", entry.ReadOnly, len(entry.Synonyms)))
		}
	}
	sort.Strings(set)
	return set
}

func configs(admin sarama.ClusterAdmin) {
	show := func(call, awaited string) {
		var entries []sarama.ConfigEntry
		eventually(func() bool {
			entries = must(admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}))
			return strings.Contains(strings.Join(own(entries), " "), awaited)
		})
		say(call, own(entries), nil)
	}
	show("DescribeConfig", "retention.ms=100000")
	say("IncrementalAlterConfig", nil, admin.IncrementalAlterConfig(sarama.TopicResource, topic,
		map[string]sarama.IncrementalAlterConfigsEntry{
			"cleanup.policy": {Operation: sarama.IncrementalAlterConfigsOperationAppend, Value: text("compact")},
			"retention.ms":   {Operation: sarama.IncrementalAlterConfigsOperationDelete}}, false))
	show("DescribeConfig, changed", "cleanup.policy=delete,compact")
	say("IncrementalAlterConfig, unknown", nil, admin.IncrementalAlterConfig(sarama.TopicResource, topic,
		map[string]sarama.IncrementalAlterConfigsEntry{
			"nonsense": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: text("1")}}, false))
	say("AlterConfig", nil, admin.AlterConfig(sarama.TopicResource, topic,
		map[string]*string{"segment.ms": text("100000")}, false))
	show("DescribeConfig, replaced", "segment.ms=100000")
	_, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: "sarama-none"})
	say("DescribeConfig, none", nil, err)
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.BrokerResource, Name: "1",
		ConfigNames: []string{"num.partitions", "log.retention.ms", "min.insync.replicas"}})
	say("DescribeConfig, broker", own(entries), err)
}

func records(address string, admin sarama.ClusterAdmin) {
	config := settings()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Idempotent, config.Producer.RequiredAcks = true, sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	producer := must(sarama.NewSyncProducer([]string{address}, config))
	for index := range 20 {
		partition, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: int32(index % 2),
			Value: sarama.StringEncoder(fmt.Sprint(index)), Headers: []sarama.RecordHeader{{Key: []byte("h")}}})
		say("SendMessage", []any{partition, offset}, err)
	}
	must(0, producer.Close())

	config = settings()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Idempotent, config.Producer.RequiredAcks = true, sarama.WaitForAll
	config.Producer.Transaction.ID, config.Net.MaxOpenRequests = transactional, 1
	producer = must(sarama.NewSyncProducer([]string{address}, config))
	for _, committed := range []bool{true, false, true} {
		say("BeginTxn", nil, producer.BeginTxn())
		_, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: 2,
			Value: sarama.StringEncoder(fmt.Sprint(committed))})
		say("SendMessage in a transaction", offset, err)
		if committed {
			offsets := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: offset + 1}}}
			say("AddOffsetsToTxn", nil, producer.AddOffsetsToTxn(offsets, group))
			say("CommitTxn", nil, producer.CommitTxn())
		} else {
			say("AbortTxn", nil, producer.AbortTxn())
		}
	}
	must(0, producer.Close())

	config = settings()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer := must(sarama.NewConsumer([]string{address}, config))
	reader := must(consumer.ConsumePartition(topic, 2, sarama.OffsetOldest))
	for range 2 {
		message := <-reader.Messages()
		say("read_committed", []any{message.Offset, string(message.Value)}, nil)
	}
	must(0, reader.Close())
	must(0, consumer.Close())
	for _, time := range []int64{sarama.OffsetNewest, sarama.OffsetOldest} {
		offsets, err := admin.ListOffsets(map[string]map[int32]int64{topic: {0: time, 1: time, 2: time}}, nil)
		for partition := range int32(3) {
			say("ListOffsets", []any{time, offsets[topic][partition].Offset, code(offsets[topic][partition].Err)}, err)
		}
	}
	say("DeleteRecords", nil, admin.DeleteRecords(topic, map[int32]int64{0: 3, 1: -1}))
	say("DeleteRecords, too far", nil, admin.DeleteRecords(topic, map[int32]int64{0: 3000}))
}

type reader struct{}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
	}
	return nil
}

func groups(address string, admin sarama.ClusterAdmin) {
	config := settings()
	config.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
	members := must(sarama.NewConsumerGroup([]string{address}, group, config))
	working, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- members.Consume(working, []string{second, topic}, &reader{}) }()
	var described []*sarama.GroupDescription
	eventually(func() bool {
		found, err := admin.DescribeConsumerGroups([]string{group})
		described = found
		return err == nil && found[0].State == "Stable" && len(found[0].Members) == 1
	})
	say("DescribeConsumerGroups", []any{described[0].ProtocolType, described[0].Protocol, int(described[0].ErrorCode)}, nil)
	say("DeleteConsumerGroup, with members", nil, admin.DeleteConsumerGroup(group))
	say("DeleteConsumerGroupOffset, subscribed", nil, admin.DeleteConsumerGroupOffset(group, topic, 0))
	stop()
	say("Consume", nil, <-done)
	must(0, members.Close())
	listed, err := admin.ListConsumerGroups()
	say("ListConsumerGroups", listed[group], err)
	altered, err := admin.AlterConsumerGroupOffsets(group,
		map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 4, LeaderEpoch: -1}, 1: {Offset: 2, LeaderEpoch: -1, Metadata: "m"}}}, nil)
	if err == nil {
		say("AlterConsumerGroupOffsets", altered.Errors, nil)
	} else {
		say("AlterConsumerGroupOffsets", nil, err)
	}
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	for partition := range int32(2) {
		if block := offsets.GetBlock(topic, partition); block != nil {
			say("ListConsumerGroupOffsets", []any{block.Offset, block.Metadata, int(block.Err)}, err)
		}
	}
	say("DeleteConsumerGroupOffset", nil, admin.DeleteConsumerGroupOffset(group, topic, 0))
	gone, err := admin.RemoveMemberFromConsumerGroup(group, []string{"nobody"})
	if err == nil {
		say("RemoveMemberFromConsumerGroup", []any{int(gone.Err), int(gone.Members[0].Err)}, nil)
	} else {
		say("RemoveMemberFromConsumerGroup", nil, err)
	}
	say("DeleteConsumerGroup", nil, admin.DeleteConsumerGroup(group))
	say("DeleteConsumerGroup again", nil, admin.DeleteConsumerGroup(group))
}

func cluster(admin sarama.ClusterAdmin) {
	brokers, controller, err := admin.DescribeCluster()
	say("DescribeCluster", []any{len(brokers), controller}, err)
	folders, err := admin.DescribeLogDirs([]int32{1})
	for _, folder := range folders[1] {
		say("DescribeLogDirs", []any{int(folder.ErrorCode), len(folder.Topics) > 1}, err)
	}
	created, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{Name: user,
		Mechanism: sarama.SCRAM_MECHANISM_SHA_256, Iterations: 4096, Salt: []byte("salt"), Password: []byte("p")}})
	say("UpsertUserScramCredentials", int(created[0].ErrorCode), err)
	var users []*sarama.DescribeUserScramCredentialsResult
	eventually(func() bool {
		users, err = admin.DescribeUserScramCredentials([]string{user, "sarama-nobody"})
		sort.Slice(users, func(i, j int) bool { return users[i].User > users[j].User })
		return err == nil && len(users[0].CredentialInfos) > 0
	})
	for _, each := range users {
		say("DescribeUserScramCredentials", []any{each.User, int(each.ErrorCode), each.CredentialInfos}, err)
	}
	deleted, err := admin.DeleteUserScramCredentials([]sarama.AlterUserScramCredentialsDelete{
		{Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_256}})
	say("DeleteUserScramCredentials", int(deleted[0].ErrorCode), err)
	of := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: user}}
	say("AlterClientQuotas", nil, admin.AlterClientQuotas(of, sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e6}, false))
	say("AlterClientQuotas, unknown", nil, admin.AlterClientQuotas(of, sarama.ClientQuotasOp{Key: "nonsense", Value: 1}, false))
	var quotas []sarama.DescribeClientQuotasEntry
	eventually(func() bool {
		quotas, err = admin.DescribeClientQuotas([]sarama.QuotaFilterComponent{
			{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Match: user}}, true)
		return err != nil || len(quotas) > 0
	})
	say("DescribeClientQuotas", quotas, err)
	say("AlterClientQuotas, removed", nil, admin.AlterClientQuotas(of, sarama.ClientQuotasOp{Key: "producer_byte_rate", Remove: true}, false))
	resource := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: topic, ResourcePatternType: sarama.AclPatternLiteral}
	say("CreateACL", nil, admin.CreateACL(resource, sarama.Acl{Principal: "User:" + user, Host: "*",
		Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow}))
	filter := sarama.AclFilter{ResourceType: sarama.AclResourceTopic, ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny, ResourceName: text(topic)}
	var acls []sarama.ResourceAcls
	eventually(func() bool {
		acls, err = admin.ListAcls(filter)
		return err != nil || len(acls) > 0
	})
	say("ListAcls", acls, err)
	matching, err := admin.DeleteACL(filter, false)
	say("DeleteACL", len(matching), err)
	updated, err := admin.UpdateFeatures([]sarama.FeatureUpdate{{Feature: "nonsense", MaxVersionLevel: 1}})
	say("UpdateFeatures", updated, err)
}

// restarts sends to a broker that is killed meanwhile, with an idempotent producer.
func restarts(address string, admin sarama.ClusterAdmin) {
	must(0, admin.CreateTopic(ofKill, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	config := settings()
	config.Producer.Idempotent, config.Producer.RequiredAcks = true, sarama.WaitForAll
	config.Producer.Return.Successes, config.Net.MaxOpenRequests = true, 1
	config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 600, 100*time.Millisecond
	config.Producer.Retry.Max, config.Producer.Retry.Backoff = 600, 100*time.Millisecond
	producer := must(sarama.NewAsyncProducer([]string{address}, config))
	acknowledged := make(chan []string)
	go func() {
		var values []string
		for record := range producer.Successes() {
			values = append(values, string(record.Value.(sarama.StringEncoder)))
		}
		acknowledged <- values
	}()
	// sarama gives some records up while it has no connection.
	go func() {
		for range producer.Errors() {
		}
	}()
	sent := killed(func(value string) {
		producer.Input() <- &sarama.ProducerMessage{Topic: ofKill, Value: sarama.StringEncoder(value)}
	})
	producer.AsyncClose()
	kept := <-acknowledged
	say("Killed: some are acknowledged", len(kept) > whileKilled/2-10 && len(kept) <= sent, nil)
	client := must(sarama.NewClient([]string{address}, settings()))
	end := must(client.GetOffset(ofKill, 0, sarama.OffsetNewest))
	partition := must(must(sarama.NewConsumerFromClient(client)).ConsumePartition(ofKill, 0, sarama.OffsetOldest))
	var found []string
	for record := range partition.Messages() {
		found = append(found, string(record.Value))
		if record.Offset == end-1 {
			break
		}
	}
	there := map[string]bool{}
	for _, value := range found {
		there[value] = true
	}
	lost := 0
	for _, value := range kept {
		if !there[value] {
			lost++
		}
	}
	say("Killed: acknowledged and lost, doubled", []int{lost, len(found) - len(there)}, nil)
}

func main() {
	address := os.Args[1]
	admin := must(sarama.NewClusterAdmin([]string{address}, settings()))
	topics(admin)
	moves(admin)
	configs(admin)
	records(address, admin)
	groups(address, admin)
	cluster(admin)
	restarts(address, admin)
	// The connections of the first one are those to the broker that was killed.
	admin = must(sarama.NewClusterAdmin([]string{address}, settings()))
	say("DeleteTopic", nil, admin.DeleteTopic(topic))
	say("DeleteTopic", nil, admin.DeleteTopic(second))
	say("DeleteTopic again", nil, admin.DeleteTopic(second))
	must(0, admin.Close())
}
