// franz-go as a producer that pushes metrics for some seconds: HOST:PORT, a topic and seconds.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.ClientID("franz-go-client"),
		kgo.DefaultProduceTopic(os.Args[2]), kgo.AllowAutoTopicCreation(),
	)
	if err != nil {
		panic(err)
	}
	seconds, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	sent := 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); sent++ {
		record := &kgo.Record{Value: []byte("value")}
		if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
			panic(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	client.Close()
	fmt.Printf("sent %d\n", sent)
}
