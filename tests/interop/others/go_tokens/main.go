// franz-go with delegation tokens: HOST:PORT and the password of admin, who uses PLAIN. One line for each call.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func client(mechanism sasl.Mechanism) *kgo.Client {
	return must(kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.SASL(mechanism), kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic("t"),
	))
}

func main() {
	patience, end := context.WithTimeout(context.Background(), 60*time.Second)
	defer end()
	user := client(plain.Auth{User: "admin", Pass: os.Args[2]}.AsMechanism())
	defer user.Close()
	admin := kadm.NewClient(user)
	token := must(admin.CreateDelegationToken(patience, kadm.CreateDelegationToken{
		Renewers: []kadm.Principal{{Type: "User", Name: "bob"}}, MaxLifetime: time.Hour,
	}))
	fmt.Printf("created: of %s:%s for %s\n", token.Owner.Type, token.Owner.Name, token.MaxTimestamp.Sub(token.IssueTimestamp))
	for _, each := range must(admin.DescribeDelegationTokens(patience)) {
		fmt.Printf("described: %t, renewed by %s:%s\n", each.TokenID == token.TokenID, each.Renewers[0].Type, each.Renewers[0].Name)
	}
	auth := scram.Auth{User: token.TokenID, Pass: base64.StdEncoding.EncodeToString(token.HMAC), IsToken: true}
	produce := func(mechanism sasl.Mechanism) {
		by := client(mechanism)
		defer by.Close()
		err := by.Ping(patience)
		if err == nil {
			err = by.ProduceSync(patience, kgo.StringRecord("by token")).FirstErr()
		}
		fmt.Printf("%s produces: %t\n", mechanism.Name(), err == nil)
	}
	produce(auth.AsSha256Mechanism())
	produce(auth.AsSha512Mechanism())
	renewed := must(admin.RenewDelegationToken(patience, token.HMAC, time.Minute))
	fmt.Printf("renewed: %t\n", renewed.Before(token.ExpiryTimestamp))
	must(admin.ExpireDelegationToken(patience, token.HMAC, -time.Millisecond))
	fmt.Printf("left: %d\n", len(must(admin.DescribeDelegationTokens(patience))))
	produce(auth.AsSha512Mechanism())
}
