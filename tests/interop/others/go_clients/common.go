// The parts that the programs in the folders beside this file have in common: it is copied into each before it is built.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

const whileKilled = 300

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

// killed sends records while the broker is killed (signal 9) and starts again, and returns how many.
func killed(send func(value string)) int {
	up := make(chan struct{})
	for sent := 1; ; sent++ {
		send(fmt.Sprint("v-", sent))
		if sent == whileKilled/2 {
			go func() {
				fmt.Println("wanted: another start of the broker")
				bufio.NewReader(os.Stdin).ReadString('\n')
				close(up)
			}()
		}
		if sent > whileKilled/2 {
			time.Sleep(10 * time.Millisecond)
		}
		select {
		case <-up:
			if sent >= whileKilled {
				return sent
			}
		default:
		}
	}
}

// lostAndDoubled counts the sent records that are missing, and those that are there again.
func lostAndDoubled(sent int, found []string) []int {
	times := map[string]int{}
	for _, value := range found {
		times[value]++
	}
	return []int{sent - len(times), len(found) - len(times)}
}
