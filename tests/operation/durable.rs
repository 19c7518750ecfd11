//! What was acknowledged is on the disk: shown by the server's system calls, since a killed process proves nothing (the
//! page cache survives it).

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signalbox_tests::World;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Acknowledgements that are looked at.
const SAMPLE: usize = 1000;

/// Between two acknowledgements of single appends the log's block file was written, and synced after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_append_is_synced_before_it_is_acknowledged() {
    if Command::new("strace").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        eprintln!("no strace here: the order of writes, syncs and acknowledgements is not checked");
        return;
    }
    let world = World::ready(1).await;
    let nats = world.nats.as_ref().unwrap();
    let trace = world.scratch.path().join("trace");
    let calls = "trace=write,pwrite64,writev,fsync,fdatasync,sendto,sendmsg";
    let mut strace = Command::new("strace")
        .args(["-f", "-y", "-s", "300", "-e", calls, "-o"])
        .arg(&trace)
        .args(["-p", &nats.server.id().to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Attached once it has seen a call.
    for _ in 0..100 {
        if std::fs::metadata(&trace).is_ok_and(|data| data.len() > 0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let journal = world.services[0].ledger.journal().clone();
    // The tracer misses the first few: it takes hold of one thread after the other.
    for n in 0..SAMPLE as u128 + 200 {
        let aggregate = signalbox_events::Aggregate::setting(signalbox_events::AccountId(uuid::Uuid::from_u128(n + 1)));
        let append =
            signalbox_journal::Append { subject: aggregate.subject(1), expected: 0, payload: vec![7; 200].into(), kind: "x", traceparent: None };
        journal.append(append).await.unwrap();
    }
    kill(Pid::from_raw(strace.id() as i32), Signal::SIGINT).unwrap();
    strace.wait().unwrap();
    let trace = std::fs::read_to_string(&trace).unwrap();
    let (mut written, mut synced, mut acknowledged) = (false, false, 0);
    for line in trace.lines() {
        let of_log = line.contains("/streams/EVENTS_0/msgs/") && line.contains(".blk");
        if of_log && (line.contains("write(") || line.contains("pwrite64(")) {
            (written, synced) = (true, false);
        } else if of_log && (line.contains("fsync(") || line.contains("fdatasync(")) {
            synced = written;
        } else if line.contains("socket:") || line.contains("TCP:") {
            let acks = line.matches("{\\\"stream\\\":\\\"EVENTS_0\\\", \\\"seq\\\":").count()
                + line.matches("{\\\"stream\\\":\\\"EVENTS_0\\\",\\\"seq\\\":").count();
            if acks > 0 {
                assert!(synced, "acknowledged before it was synced:\n{line}");
                acknowledged += acks;
                (written, synced) = (false, false);
            }
        }
    }
    assert!(acknowledged >= SAMPLE, "{acknowledged} acknowledgements were seen in {} lines", trace.lines().count());
    world.stop().await;
}
