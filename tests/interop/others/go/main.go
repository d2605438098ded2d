// franz-go at a listener of SASL: HOST:PORT and a password. One line for each mechanism.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func client(mechanism sasl.Mechanism, topic string) *kgo.Client {
	made, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.SASL(mechanism), kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		panic(err)
	}
	return made
}

func mechanism(name, password string) sasl.Mechanism {
	switch name {
	case "plain":
		return plain.Auth{User: "alice", Pass: password}.AsMechanism()
	case "scram-sha-256":
		return scram.Auth{User: "alice", Pass: password}.AsSha256Mechanism()
	default:
		return scram.Auth{User: "alice", Pass: password}.AsSha512Mechanism()
	}
}

func main() {
	for _, name := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		patience, end := context.WithTimeout(context.Background(), 30*time.Second)
		one := client(mechanism(name, os.Args[2]), "go-"+name)
		if err := one.ProduceSync(patience, &kgo.Record{Value: []byte("sent")}).FirstErr(); err != nil {
			fmt.Printf("%s: %v\n", name, err)
			os.Exit(1)
		}
		for _, record := range one.PollFetches(patience).Records() {
			fmt.Printf("%s: %s\n", name, record.Value)
		}
		one.Close()
		wrong := client(mechanism(name, "wrong"), "go-"+name)
		if err := wrong.Ping(patience); err != nil {
			fmt.Printf("%s: refused\n", name)
		}
		wrong.Close()
		end()
	}
}
