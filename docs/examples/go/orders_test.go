package orders

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

var odradek *Odradek

func TestMain(m *testing.M) {
	var err error
	if odradek, err = startOdradek(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	code := m.Run()
	odradek.stop()
	os.Exit(code)
}

func ordersOf(t *testing.T, cluster *Cluster) (*Orders, context.Context) {
	orders, err := Open(cluster.Bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(func() { cancel(); orders.Close() })
	return orders, ctx
}

func store(t *testing.T, ctx context.Context, orders *Orders, apples int) {
	t.Helper()
	if err := orders.Store(ctx, apples); err != nil {
		t.Fatal(err)
	}
}

func expectTotal(t *testing.T, ctx context.Context, orders *Orders, count, expected int) {
	t.Helper()
	if total, err := orders.Total(ctx, count); err != nil || total != expected {
		t.Fatalf("the total is %d (%v), not %d", total, err, expected)
	}
}

func TestOrdersAreAddedUp(t *testing.T) {
	orders, ctx := ordersOf(t, odradek.cluster(t))
	store(t, ctx, orders, 4)
	store(t, ctx, orders, 5)
	expectTotal(t, ctx, orders, 2, 9)
}

func TestAnOrderIsStoredAlthoughTheBrokerRefusesItAtFirst(t *testing.T) {
	cluster := odradek.cluster(t)
	orders, ctx := ordersOf(t, cluster)
	store(t, ctx, orders, 4)
	met := cluster.fault(map[string]any{"fault": "fail", "api": "Produce", "code": "NOT_ENOUGH_REPLICAS", "times": 2})
	store(t, ctx, orders, 5)
	if met() != 2 {
		t.Fatalf("the fault applied to %d requests, not 2", met())
	}
	expectTotal(t, ctx, orders, 2, 9)
}

func TestOrdersSurviveACrashOfTheBroker(t *testing.T) {
	cluster := odradek.cluster(t)
	orders, ctx := ordersOf(t, cluster)
	store(t, ctx, orders, 4)
	cluster.kill()
	stored := make(chan error, 1)
	go func() { stored <- orders.Store(ctx, 5) }()
	cluster.restart()
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	expectTotal(t, ctx, orders, 2, 9)
}
