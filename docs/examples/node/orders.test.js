const assert = require("node:assert");
const { after, afterEach, before, beforeEach, test } = require("node:test");
const { Orders } = require("./orders");
const { startOdradek } = require("./odradek");

let odradek, cluster, orders;
before(async () => (odradek = await startOdradek()));
after(() => odradek.stop());
beforeEach(async () => {
  cluster = await odradek.cluster();
  orders = new Orders(cluster.bootstrap);
  await orders.connect();
});
afterEach(async () => {
  await orders.close();
  await cluster.close();
});

test("orders are added up", async () => {
  await orders.store(4);
  await orders.store(5);
  assert.equal(await orders.total(2), 9);
});

test("an order is stored although the broker refuses it at first", async () => {
  await orders.store(4);
  await cluster.fault({ fault: "fail", api: "Produce", code: "NOT_ENOUGH_REPLICAS", times: 2 });
  await orders.store(5);
  assert.equal((await cluster.faults())[0].met, 2);
  assert.equal(await orders.total(2), 9);
});

test("orders survive a crash of the broker", async () => {
  await orders.store(4);
  await cluster.kill();
  const storing = orders.store(5);
  await cluster.restart();
  await storing;
  assert.equal(await orders.total(2), 9);
});
