//! A broker for a test run, and a cluster for each test. Copy this file.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

static ORDERS: OnceLock<String> = OnceLock::new();

/// Starts `odradek serve --testing`, from the PATH or from $ODRADEK, once for each run.
fn orders() -> &'static str {
    ORDERS.get_or_init(|| {
        let program = std::env::var("ODRADEK").unwrap_or("odradek".to_string());
        let folder = format!("{}/odradek-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
        let mut broker = Command::new(program)
            .args(["serve", "--testing", "--exit-with-parent", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("odradek is on the PATH");
        let mut line = String::new();
        BufReader::new(broker.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (_, address) = line.trim().split_once("faults on ").expect("odradek is ready");
        address.to_string()
    })
}

fn order(method: &str, address: &str, path: &str, body: Value) -> Value {
    let body = body.to_string();
    let mut connection = TcpStream::connect(address).unwrap();
    write!(
        connection,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, json) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
    serde_json::from_str(json).unwrap()
}

/// A cluster of one broker, with topics, groups and faults of its own; dropped, it is deleted.
pub struct Cluster(Value);

impl Cluster {
    pub fn new() -> Cluster { Cluster(order("POST", orders(), "/clusters", json!({}))) }
    pub fn bootstrap(&self) -> &str { self.0["bootstrap"].as_str().unwrap() }
    pub fn kill(&self) { order("POST", orders(), &self.path("/kill"), json!({})); }
    pub fn restart(&self) { order("POST", orders(), &self.path("/restart"), json!({})); }
    pub fn fault(&self, fault: Value) { order("POST", self.faults(), "/faults", fault); }
    /// The ordered faults, with the number of requests that each applied to.
    pub fn list(&self) -> Value { order("GET", self.faults(), "/faults", json!({}))["faults"].take() }
    fn faults(&self) -> &str { self.0["faults"].as_str().unwrap() }
    fn path(&self, change: &str) -> String { format!("/clusters/{}{change}", self.0["id"]) }
}

impl Drop for Cluster {
    fn drop(&mut self) { order("DELETE", orders(), &self.path(""), json!({})); }
}
