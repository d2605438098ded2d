mod odradek;

use odradek::Cluster;
use orders::Orders;
use serde_json::json;

#[test]
fn orders_are_added_up() {
    let cluster = Cluster::new();
    let orders = Orders::open(cluster.bootstrap()).unwrap();
    orders.store(4).unwrap();
    orders.store(5).unwrap();
    assert_eq!(orders.total(2).unwrap(), 9);
}

#[test]
fn an_order_is_stored_although_the_broker_refuses_it_at_first() {
    let cluster = Cluster::new();
    let orders = Orders::open(cluster.bootstrap()).unwrap();
    orders.store(4).unwrap();
    cluster.fault(json!({"fault": "fail", "api": "Produce", "code": "NOT_ENOUGH_REPLICAS", "times": 2}));
    orders.store(5).unwrap();
    assert_eq!(cluster.list()[0]["met"], 2);
    assert_eq!(orders.total(2).unwrap(), 9);
}

#[test]
fn orders_survive_a_crash_of_the_broker() {
    let cluster = Cluster::new();
    let orders = Orders::open(cluster.bootstrap()).unwrap();
    orders.store(4).unwrap();
    cluster.kill();
    std::thread::scope(|scope| {
        let storing = scope.spawn(|| orders.store(5));
        cluster.restart();
        storing.join().unwrap().unwrap();
    });
    assert_eq!(orders.total(2).unwrap(), 9);
}
