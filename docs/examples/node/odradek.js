// A broker for a test run, and a cluster for each test. Copy this file.
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

/** Starts `odradek serve --testing`, from the PATH or from $ODRADEK, once for each run. */
async function startOdradek() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "odradek-"));
  const broker = spawn(process.env.ODRADEK ?? "odradek", [
    ...["serve", "--testing", "--exit-with-parent", "--listen", "127.0.0.1:0"],
    ...["--data-dir", path.join(folder, "data")],
  ], { stdio: ["ignore", "pipe", "ignore"] });
  const orders = await new Promise((resolve, reject) => {
    let printed = "";
    broker.once("error", reject);
    broker.once("exit", () => reject(new Error(`odradek ended; its data is in ${folder}`)));
    broker.stdout.on("data", (data) => {
      printed += data;
      const ready = /faults on (\S+)\n/.exec(printed);
      if (ready) resolve(ready[1]);
    });
  });

  async function order(method, address, body = {}) {
    const answer = await fetch(`http://${address}`, {
      method,
      headers: { "Content-Type": "application/json" },
      body: method === "GET" ? undefined : JSON.stringify(body),
    });
    const json = await answer.json();
    if (!answer.ok) throw new Error(`${method} ${address}: ${json.error}`);
    return json;
  }

  return {
    /** A cluster of one broker, with topics, groups and faults of its own. */
    async cluster(settings = {}) {
      const made = await order("POST", `${orders}/clusters`, { settings });
      const at = `${orders}/clusters/${made.id}`;
      return {
        bootstrap: made.bootstrap,
        fault: (fault) => order("POST", `${made.faults}/faults`, fault),
        faults: async () => (await order("GET", `${made.faults}/faults`)).faults,
        kill: () => order("POST", `${at}/kill`),
        restart: () => order("POST", `${at}/restart`),
        close: () => order("DELETE", at),
      };
    },
    async stop() {
      const ended = new Promise((resolve) => broker.once("exit", resolve));
      broker.kill();
      await ended;
      fs.rmSync(folder, { recursive: true });
    },
  };
}

module.exports = { startOdradek };
