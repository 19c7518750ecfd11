//! Alone in its process, since it measures the process's memory.

use signalbox_events::{Envelope, Fact, Recorded, account, json};

/// A few bytes that promise gigabytes are refused without the memory being asked for.
#[test]
fn lengths_are_not_believed() {
    let hostile: [&[u8]; 3] = [&[0xdd, 0xff, 0xff, 0xff, 0xff], &[0xdb, 0xd5, 0xfb, 0xd5, 0xc3], &[0xdc, 0xff, 0xff].repeat(24_000)];
    let first = peak_memory();
    let mut before = 0;
    for round in 0..1000 {
        // The first round also brings in the code itself.
        if round == 1 {
            before = peak_memory();
            assert!(before - first < 8 * 1024, "{} KiB of memory were asked for at once", before - first);
        }
        for bytes in hostile {
            assert!(Envelope::decode(bytes).is_err());
            assert!(Recorded::decode(1, "evt.0.platform.setting.features", bytes).is_err());
            for (name, version) in Fact::types().filter(|(name, _)| name.starts_with("account.")) {
                assert!(account::Event::decode(name, version, bytes).is_err());
            }
            assert!(json::data(bytes).is_err());
        }
    }
    let grown = peak_memory() - before;
    assert!(grown < 1024, "{grown} KiB of memory were asked for");
}

/// The process's peak resident memory in KiB.
fn peak_memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("VmHWM: 0 kB");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
