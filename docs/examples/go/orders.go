// Package orders is the application under test: it stores orders in a topic, and adds them up.
package orders

import (
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Orders is an open connection to the topic of orders.
type Orders struct{ client *kgo.Client }

// Open connects at the first request.
func Open(bootstrap string) (*Orders, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic("orders"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// A retry waits for fresh metadata, and that, by default, for five seconds.
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	return &Orders{client}, err
}

// Store returns when the order is stored.
func (o *Orders) Store(ctx context.Context, apples int) error {
	record := kgo.StringRecord(strconv.Itoa(apples))
	return o.client.ProduceSync(ctx, record).FirstErr()
}

// Total returns the sum of the first count orders.
func (o *Orders) Total(ctx context.Context, count int) (int, error) {
	sum, read := 0, 0
	for read < count {
		fetched := o.client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		for _, record := range fetched.Records() {
			apples, err := strconv.Atoi(string(record.Value))
			if err != nil {
				return 0, err
			}
			sum, read = sum+apples, read+1
		}
	}
	return sum, nil
}

// Close ends the connection.
func (o *Orders) Close() { o.client.Close() }
