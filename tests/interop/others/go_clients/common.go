// The parts that the programs in the folders beside this file have in common: it is copied into each before it is built.
package main

import (
	"encoding/json"
	"fmt"
	"time"
)

func say(call string, found any, err error) {
	text, problem := json.Marshal(found)
	if problem != nil {
		panic(problem)
	}
	fmt.Printf("%s: %s %s\n", call, code(err), text)
}

// eventually repeats a question: Kafka's broker learns of changes after they are answered.
func eventually(ready func() bool) {
	for range 300 {
		if ready() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	panic("not there after 30 s")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func text(value string) *string { return &value }
