//! Checks of the programs beside this file, told one on a line.
// Each program uses a part of this module.
#![allow(dead_code)]
use std::collections::HashMap;
use std::io::BufRead;
use std::time::{Duration, Instant};

pub type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

const DEADLINE: Duration = Duration::from_secs(90);

/// Tells how a check went.
pub fn told(name: &str, outcome: Outcome) {
    match outcome {
        Ok(()) => println!("ok {name}"),
        Err(problem) => println!("failed {name}: {}", problem.to_string().replace('\n', " ")),
    }
}

/// Fails unless each expected value was found once, and nothing else.
pub fn each_once(found: &[String], expected: &[String]) -> Outcome {
    let mut left: HashMap<&str, i64> = HashMap::new();
    for value in expected {
        *left.entry(value).or_default() += 1;
    }
    for value in found {
        *left.entry(value).or_default() -= 1;
    }
    left.retain(|_, count| *count != 0);
    if left.is_empty() {
        return Ok(());
    }
    let some: Vec<_> = left.iter().take(5).collect();
    Err(format!("missing (> 0) or too many (< 0) are {}: {some:?}", left.len()).into())
}

pub fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{found:?}, not {expected:?}").into())
}

/// Repeats a question until it is answered with yes; fails after a deadline.
pub fn until(awaited: &str, mut ready: impl FnMut() -> bool) -> Outcome {
    let end = Instant::now() + DEADLINE;
    while !ready() {
        if Instant::now() > end {
            return Err(format!("{awaited}: not after {DEADLINE:?}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Has the broker killed (signal 9) and started again, and waits until it is up.
pub fn kill_the_broker() {
    println!("wanted: another start of the broker");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}
