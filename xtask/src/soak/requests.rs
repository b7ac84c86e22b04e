//! Request after request at one server: memory must not grow, on the host or on a device.

use std::fs::read_to_string;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::SKIPPED;
use crate::process::{describe, output};
use crate::serve::{Server, break_off, post};
use crate::workspace::Workspace;

/// Memory is noted so many times, from the first tenth of the requests on: until then caches and pools fill.
const NOTES: u32 = 10;
/// What the host's memory may grow by after that: allocators keep pages; a request that left its smallest buffers behind would take
/// more within two hundred.
const GROWTH: u64 = 8 << 20;
/// Every tenth request is left in the middle of its answer.
const BROKEN_OFF: u32 = 10;

/// Memory after some requests.
struct Note {
    requests: u32,
    host_bytes: u64,
    device_mib: Option<u64>,
}

/// What the last notes have more than the first.
fn grown(notes: &[Note], of: fn(&Note) -> Option<u64>) -> Option<u64> {
    let (first, rest) = notes.split_first()?;
    Some(rest.iter().filter_map(of).max()?.saturating_sub(of(first)?))
}

/// Asks `requests` questions, of different lengths and ways of drawing.
pub fn soak(workspace: &Workspace, maya: &Path, device: &str, requests: u32) -> Result<Value> {
    let mut command = workspace.command(&maya.to_string_lossy());
    command.args(["serve", "--port", "0", "--device", device]).env_remove("MAYA_MODEL");
    // A line for each request is not wanted.
    command.args(["--log-level", "warn"]).stdin(Stdio::null()).stdout(Stdio::piped());
    println!("{}", describe(&command));
    let mut server = Server::start(command)?;
    let address = server.address()?;
    let (begin, mut notes, mut tokens) = (Instant::now(), Vec::new(), 0);
    for i in 0..requests {
        let body = request(i);
        if i % BROKEN_OFF == BROKEN_OFF - 1 {
            break_off(&address, "/v1/chat/completions", &body)?;
        } else {
            let answer = post(&address, "/v1/chat/completions", &body)?;
            tokens += answer["usage"]["completion_tokens"].as_u64().context("an answer counts its tokens")?;
        }
        if (i + 1) % (requests / NOTES).max(1) == 0 {
            let note = Note {
                requests: i + 1,
                host_bytes: resident(server.id())?,
                device_mib: on_device(server.id(), device),
            };
            println!(
                "  {} requests: {} bytes of memory, on the device {:?} MiB",
                note.requests, note.host_bytes, note.device_mib
            );
            notes.push(note);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    server.interrupt()?;
    let host = grown(&notes, |note| Some(note.host_bytes)).context("too few requests to see a growth")?;
    let device_mib = grown(&notes, |note| note.device_mib);
    let reached = json!({
        "host_memory": host <= GROWTH,
        "device_memory": device_mib.map_or(json!(SKIPPED), |grown| json!(grown == 0)),
    });
    let notes = notes.iter().map(|note| {
        json!({ "requests": note.requests, "host_bytes": note.host_bytes, "device_mib": note.device_mib })
    });
    Ok(json!({
        "reached": reached,
        "device": device,
        "requests": requests,
        "completion_tokens": tokens,
        "requests_s": f64::from(requests) / seconds,
        "grown_host_bytes": host,
        "grown_device_mib": device_mib,
        "notes": notes.collect::<Vec<_>>(),
    }))
}

/// Questions that differ, so that nothing can be kept from the one before; drawn greedily or not, with penalties or not.
fn request(i: u32) -> String {
    let words = ["river", "mountain", "seven", "blue", "Paris", "music", "winter", "bread"];
    let said: Vec<&str> = (0..1 + i % 40).map(|at| words[((i + at * at) % 8) as usize]).collect();
    let mut body = json!({
        "messages": [{ "role": "user", "content": format!("{i}: {}", said.join(" ")) }],
        "max_tokens": 2 + i % 7,
        "temperature": if i.is_multiple_of(3) { 0.0 } else { 0.9 },
        "seed": i,
        "enable_thinking": i.is_multiple_of(2),
    });
    if i % 4 == 1 {
        body["presence_penalty"] = json!(0.5);
        body["logit_bias"] = json!({ "5": -1.0 });
    }
    body["stream"] = json!(i % BROKEN_OFF == BROKEN_OFF - 1);
    body.to_string()
}

/// Bytes of a process's own memory in RAM.
fn resident(id: u32) -> Result<u64> {
    let path = format!("/proc/{id}/status");
    let status = read_to_string(&path).with_context(|| format!("{path} cannot be read"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    match kilobytes {
        Some(kilobytes) => Ok(kilobytes * 1024),
        None => bail!("{path} names no memory of its own"),
    }
}

/// MiB that a process has of a device's memory, where the driver's tool tells.
fn on_device(id: u32, device: &str) -> Option<u64> {
    if device == "cpu" {
        return None;
    }
    let ordinal = device.split(':').nth(1).unwrap_or("0");
    let query = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"];
    let text = output(Command::new("nvidia-smi").args(query)).ok()?;
    let own = |line: &str| {
        let (pid, used) = line.split_once(',')?;
        (pid.trim().parse() == Ok(id)).then(|| used.trim().parse::<u64>().ok())?
    };
    // In a container ids are not the same on both sides: then what the device has in use.
    text.lines().find_map(own).or_else(|| {
        let query = ["-i", ordinal, "--query-gpu=memory.used", "--format=csv,noheader,nounits"];
        let text = output(Command::new("nvidia-smi").args(query)).ok()?;
        text.lines().next()?.trim().parse().ok()
    })
}
