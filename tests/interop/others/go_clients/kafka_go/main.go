// kafka-go at a broker without SASL: HOST:PORT. One line for each call, with what is the same on every broker.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const topic, group, user = "kafka-go-a", "kafka-go-g", "kafka-go-u"

// code tells an error by Kafka's number: its words are each broker's own.
func code(err error) string {
	var number kafka.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &number):
		return fmt.Sprintf("error %d", int(number))
	default:
		return "error without a number"
	}
}

// sayEach tells the errors of several names, in their order.
func sayEach(call string, found map[string]error, err error) {
	if err != nil {
		say(call, nil, err)
		return
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		say(call, name, found[name])
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

var (
	client   *kafka.Client
	patience context.Context
)

func topics() {
	created, err := client.CreateTopics(patience, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: topic, NumPartitions: 3, ReplicationFactor: 1,
			ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "100000"}}},
		{Topic: "kafka-go-b", NumPartitions: 1, ReplicationFactor: 2}}})
	check(err)
	sayEach("CreateTopics", created.Errors, nil)
	parts, err := client.CreatePartitions(patience, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{
		{Name: topic, Count: 4}, {Name: "kafka-go-none", Count: 4}}})
	check(err)
	sayEach("CreatePartitions", parts.Errors, nil)
	var metadata *kafka.MetadataResponse
	eventually(func() bool {
		metadata, err = client.Metadata(patience, &kafka.MetadataRequest{Topics: []string{topic}})
		check(err)
		return len(metadata.Topics[0].Partitions) == 4
	})
	say("Metadata", []any{metadata.Controller.ID, len(metadata.Brokers)}, metadata.Topics[0].Error)
}

func moves() {
	moved, err := client.AlterPartitionReassignments(patience, &kafka.AlterPartitionReassignmentsRequest{
		Topic: topic, Timeout: 5 * time.Second, Assignments: []kafka.AlterPartitionReassignmentsRequestAssignment{
			{PartitionID: 0, BrokerIDs: []int{1}}, {PartitionID: 1, BrokerIDs: []int{1, 2}}, {PartitionID: 2},
			{PartitionID: 99, BrokerIDs: []int{1}}, {Topic: "kafka-go-none", PartitionID: 0, BrokerIDs: []int{1}}}})
	check(err)
	sort.Slice(moved.PartitionResults, func(i, j int) bool {
		one, other := moved.PartitionResults[i], moved.PartitionResults[j]
		return one.Topic < other.Topic || one.Topic == other.Topic && one.PartitionID < other.PartitionID
	})
	for _, each := range moved.PartitionResults {
		say("AlterPartitionReassignments", []any{each.Topic, each.PartitionID}, each.Error)
	}
	say("AlterPartitionReassignments", nil, moved.Error)
	listed, err := client.ListPartitionReassignments(patience, &kafka.ListPartitionReassignmentsRequest{Timeout: 5 * time.Second})
	check(err)
	say("ListPartitionReassignments", listed.Topics, listed.Error)
	listed, err = client.ListPartitionReassignments(patience, &kafka.ListPartitionReassignmentsRequest{Timeout: 5 * time.Second,
		Topics: map[string]kafka.ListPartitionReassignmentsRequestTopic{topic: {PartitionIndexes: []int{0, 1, 99}}}})
	check(err)
	say("ListPartitionReassignments of one", listed.Topics, listed.Error)
	elected, err := client.ElectLeaders(patience, &kafka.ElectLeadersRequest{Topic: topic, Partitions: []int{0, 1, 99}, Timeout: 5 * time.Second})
	check(err)
	sort.Slice(elected.PartitionResults, func(i, j int) bool {
		return elected.PartitionResults[i].Partition < elected.PartitionResults[j].Partition
	})
	for _, each := range elected.PartitionResults {
		say("ElectLeaders", each.Partition, each.Error)
	}
	say("ElectLeaders", nil, elected.Error)
}

func configs() {
	show := func(call, awaited string) {
		var set []string
		eventually(func() bool {
			described, err := client.DescribeConfigs(patience, &kafka.DescribeConfigsRequest{IncludeSynonyms: true,
				Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}}})
			check(err)
			check(described.Resources[0].Error)
			set = nil
			for _, entry := range described.Resources[0].ConfigEntries {
				if entry.ConfigSource != 5 && entry.ConfigSource != 4 {
					set = append(set, fmt.Sprint(entry.ConfigName, "=", entry.ConfigValue, " ", entry.ConfigSource, " ", len(entry.ConfigSynonyms)))
				}
			}
			sort.Strings(set)
			return strings.Contains(strings.Join(set, " "), awaited)
		})
		say(call, set, nil)
	}
	show("DescribeConfigs", "retention.ms=100000")
	changed, err := client.IncrementalAlterConfigs(patience, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: "cleanup.policy", Value: "compact", ConfigOperation: kafka.ConfigOperationAppend}}},
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: "kafka-go-none", Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: "cleanup.policy", Value: "compact", ConfigOperation: kafka.ConfigOperationSet}}}}})
	check(err)
	sort.Slice(changed.Resources, func(i, j int) bool { return changed.Resources[i].ResourceName < changed.Resources[j].ResourceName })
	for _, each := range changed.Resources {
		say("IncrementalAlterConfigs", each.ResourceName, each.Error)
	}
	show("DescribeConfigs, changed", "cleanup.policy=delete,compact")
	replaced, err := client.AlterConfigs(patience, &kafka.AlterConfigsRequest{Resources: []kafka.AlterConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: []kafka.AlterConfigRequestConfig{{Name: "segment.ms", Value: "100000"}}}}})
	check(err)
	for _, problem := range replaced.Errors {
		say("AlterConfigs", nil, problem)
	}
	show("DescribeConfigs, replaced", "segment.ms=100000")
}

func records(address string) {
	writer := &kafka.Writer{Addr: kafka.TCP(address), Topic: topic, RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(message kafka.Message, partitions ...int) int { return int(message.Key[0]-'0') % 2 })}
	for _, compression := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		writer.Compression = compression
		var batch []kafka.Message
		for index := range 10 {
			batch = append(batch, kafka.Message{Key: []byte(fmt.Sprint(index)), Value: []byte("v"), Headers: []kafka.Header{{Key: "h"}}})
		}
		say("WriteMessages", compression, writer.WriteMessages(patience, batch...))
	}
	check(writer.Close())
	raw, err := client.Produce(patience, &kafka.ProduceRequest{Topic: topic, Partition: 2, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("raw"))})})
	check(err)
	say("Produce", raw.BaseOffset, raw.Error)
	fetched, err := client.Fetch(patience, &kafka.FetchRequest{Topic: topic, Partition: 2, Offset: 0, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Second})
	check(err)
	say("Fetch", []any{fetched.HighWatermark, fetched.LastStableOffset, fetched.LogStartOffset}, fetched.Error)
	offsets, err := client.ListOffsets(patience, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0), kafka.LastOffsetOf(1)}}})
	check(err)
	sort.Slice(offsets.Topics[topic], func(i, j int) bool { return offsets.Topics[topic][i].Partition < offsets.Topics[topic][j].Partition })
	for _, each := range offsets.Topics[topic] {
		say("ListOffsets", []any{each.Partition, each.FirstOffset, each.LastOffset}, each.Error)
	}
}

func groups(address string) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, GroupID: group, GroupTopics: []string{topic},
		MaxWait: 100 * time.Millisecond, StartOffset: kafka.FirstOffset})
	for range 51 {
		message, err := reader.FetchMessage(patience)
		check(err)
		check(reader.CommitMessages(patience, message))
	}
	described, err := client.DescribeGroups(patience, &kafka.DescribeGroupsRequest{GroupIDs: []string{group, "kafka-go-none"}})
	check(err)
	for _, each := range described.Groups {
		assigned := 0
		for _, member := range each.Members {
			for _, of := range member.MemberAssignments.Topics {
				assigned += len(of.Partitions)
			}
		}
		say("DescribeGroups", []any{each.GroupID, each.GroupState, len(each.Members), assigned}, each.Error)
	}
	busy, err := client.DeleteGroups(patience, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	check(err)
	sayEach("DeleteGroups, with members", busy.Errors, nil)
	check(reader.Close())
	listed, err := client.ListGroups(patience, &kafka.ListGroupsRequest{})
	check(err)
	for _, each := range listed.Groups {
		if each.GroupID == group {
			say("ListGroups", []any{each.GroupID, each.Coordinator, each.ProtocolType}, listed.Error)
		}
	}
	committed, err := client.OffsetFetch(patience, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0, 1, 2}}})
	check(err)
	sort.Slice(committed.Topics[topic], func(i, j int) bool {
		return committed.Topics[topic][i].Partition < committed.Topics[topic][j].Partition
	})
	for _, each := range committed.Topics[topic] {
		say("OffsetFetch", []any{each.Partition, each.CommittedOffset}, each.Error)
	}
	forgotten, err := client.OffsetDelete(patience, &kafka.OffsetDeleteRequest{GroupID: group, Topics: map[string][]int{topic: {0, 99}}})
	check(err)
	sort.Slice(forgotten.Topics[topic], func(i, j int) bool {
		return forgotten.Topics[topic][i].Partition < forgotten.Topics[topic][j].Partition
	})
	for _, each := range forgotten.Topics[topic] {
		say("OffsetDelete", each.Partition, each.Error)
	}
	gone, err := client.DeleteGroups(patience, &kafka.DeleteGroupsRequest{GroupIDs: []string{group, "kafka-go-none"}})
	check(err)
	sayEach("DeleteGroups", gone.Errors, nil)
}

func transactions() {
	var coordinator *kafka.FindCoordinatorResponse
	var err error
	// A broker that has just started makes the topic of transactions, and loads it.
	eventually(func() bool {
		coordinator, err = client.FindCoordinator(patience, &kafka.FindCoordinatorRequest{Key: "kafka-go-t", KeyType: kafka.CoordinatorKeyTypeTransaction})
		check(err)
		return coordinator.Error == nil
	})
	say("FindCoordinator", coordinator.Coordinator.NodeID, coordinator.Error)
	var begun *kafka.InitProducerIDResponse
	eventually(func() bool {
		begun, err = client.InitProducerID(patience, &kafka.InitProducerIDRequest{TransactionalID: "kafka-go-t", TransactionTimeoutMs: 10000, ProducerID: -1, ProducerEpoch: -1})
		check(err)
		return begun.Error == nil
	})
	say("InitProducerID", begun.Producer.ProducerEpoch, begun.Error)
	added, err := client.AddPartitionsToTxn(patience, &kafka.AddPartitionsToTxnRequest{TransactionalID: "kafka-go-t",
		ProducerID: begun.Producer.ProducerID, ProducerEpoch: begun.Producer.ProducerEpoch,
		Topics: map[string][]kafka.AddPartitionToTxn{topic: {{Partition: 0}}}})
	check(err)
	for _, each := range added.Topics[topic] {
		say("AddPartitionsToTxn", each.Partition, each.Error)
	}
	offsets, err := client.AddOffsetsToTxn(patience, &kafka.AddOffsetsToTxnRequest{TransactionalID: "kafka-go-t",
		ProducerID: begun.Producer.ProducerID, ProducerEpoch: begun.Producer.ProducerEpoch, GroupID: "kafka-go-h"})
	check(err)
	say("AddOffsetsToTxn", nil, offsets.Error)
	ended, err := client.EndTxn(patience, &kafka.EndTxnRequest{TransactionalID: "kafka-go-t",
		ProducerID: begun.Producer.ProducerID, ProducerEpoch: begun.Producer.ProducerEpoch, Committed: true})
	check(err)
	say("EndTxn", nil, ended.Error)
}

func users() {
	upserted, err := client.AlterUserScramCredentials(patience, &kafka.AlterUserScramCredentialsRequest{
		Upsertions: []kafka.UserScramCredentialsUpsertion{{Name: user, Mechanism: kafka.ScramMechanismSha512, Iterations: 5000, Salt: []byte("s"), SaltedPassword: make([]byte, 64)}}})
	check(err)
	say("AlterUserScramCredentials", nil, upserted.Results[0].Error)
	var described *kafka.DescribeUserScramCredentialsResponse
	eventually(func() bool {
		described, err = client.DescribeUserScramCredentials(patience, &kafka.DescribeUserScramCredentialsRequest{
			Users: []kafka.UserScramCredentialsUser{{Name: user}}})
		check(err)
		return described.Results[0].Error == nil
	})
	say("DescribeUserScramCredentials", described.Results[0].CredentialInfos, described.Error)
	deleted, err := client.AlterUserScramCredentials(patience, &kafka.AlterUserScramCredentialsRequest{
		Deletions: []kafka.UserScramCredentialsDeletion{{Name: user, Mechanism: kafka.ScramMechanismSha512}, {Name: "kafka-go-nobody", Mechanism: kafka.ScramMechanismSha256}}})
	check(err)
	sort.Slice(deleted.Results, func(i, j int) bool { return deleted.Results[i].User < deleted.Results[j].User })
	for _, each := range deleted.Results {
		say("AlterUserScramCredentials, deleted", each.User, each.Error)
	}
	limit := []kafka.AlterClientQuotaEntry{{Entities: []kafka.AlterClientQuotaEntity{{EntityType: "user", EntityName: user}},
		Ops: []kafka.AlterClientQuotaOps{{Key: "producer_byte_rate", Value: 1e6}}}}
	altered, err := client.AlterClientQuotas(patience, &kafka.AlterClientQuotasRequest{Entries: limit})
	check(err)
	say("AlterClientQuotas", nil, altered.Entries[0].Error)
	var quotas *kafka.DescribeClientQuotasResponse
	eventually(func() bool {
		quotas, err = client.DescribeClientQuotas(patience, &kafka.DescribeClientQuotasRequest{
			Components: []kafka.DescribeClientQuotasRequestComponent{{EntityType: "user", MatchType: 0, Match: user}}, Strict: true})
		check(err)
		return len(quotas.Entries) > 0
	})
	say("DescribeClientQuotas", quotas.Entries[0].Values, quotas.Error)
	limit[0].Ops[0].Remove = true
	altered, err = client.AlterClientQuotas(patience, &kafka.AlterClientQuotasRequest{Entries: limit})
	check(err)
	say("AlterClientQuotas, removed", nil, altered.Entries[0].Error)
	acl, err := client.CreateACLs(patience, &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		ResourcePatternType: kafka.PatternTypeLiteral, Principal: "User:" + user, Host: "*", Operation: kafka.ACLOperationTypeRead, PermissionType: kafka.ACLPermissionTypeAllow}}})
	check(err)
	say("CreateACLs", nil, acl.Errors[0])
	removed, err := client.DeleteACLs(patience, &kafka.DeleteACLsRequest{Filters: []kafka.DeleteACLsFilter{{ResourceTypeFilter: kafka.ResourceTypeTopic,
		ResourceNameFilter: topic, ResourcePatternTypeFilter: kafka.PatternTypeAny, Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny}}})
	check(err)
	say("DeleteACLs", len(removed.Results[0].MatchingACLs), removed.Results[0].Error)
}

func main() {
	address := os.Args[1]
	ends := func() {}
	patience, ends = context.WithTimeout(context.Background(), time.Minute)
	defer ends()
	client = &kafka.Client{Addr: kafka.TCP(address), Timeout: 20 * time.Second, Transport: &kafka.Transport{ClientID: "kafka-go"}}
	versions, err := client.ApiVersions(patience, &kafka.ApiVersionsRequest{})
	check(err)
	for _, key := range versions.ApiKeys {
		if key.ApiKey >= 43 && key.ApiKey <= 46 {
			say("ApiVersions", []any{strings.ToUpper(key.ApiName), key.MinVersion, key.MaxVersion}, versions.Error)
		}
	}
	topics()
	moves()
	configs()
	records(address)
	groups(address)
	transactions()
	users()
	deleted, err := client.DeleteTopics(patience, &kafka.DeleteTopicsRequest{Topics: []string{topic, "kafka-go-none"}})
	check(err)
	sayEach("DeleteTopics", deleted.Errors, nil)
}
