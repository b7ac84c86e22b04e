//! What a measurement was made on: host, processor, memory, system, compiler, day.

use std::fs::read_to_string;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::process::output;

/// Vector extensions that decide which kernels run.
const EXTENSIONS: &[&str] =
    &["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "asimd", "asimddp"];

/// The machine as a JSON object; what cannot be found is null.
pub fn describe() -> Value {
    let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = field(&cpuinfo, "flags").or_else(|| field(&cpuinfo, "Features")).unwrap_or_default();
    let extensions: Vec<&str> = flags.split(' ').filter(|f| EXTENSIONS.contains(f)).collect();
    let meminfo = read_to_string("/proc/meminfo").unwrap_or_default();
    let ram = field(&meminfo, "MemTotal").and_then(|kb| kb.split(' ').next()?.parse::<u64>().ok());
    json!({
        "cpu": field(&cpuinfo, "model name"),
        "threads": std::thread::available_parallelism().ok().map(usize::from),
        "extensions": extensions,
        "ram_bytes": ram.map(|kb| kb * 1024),
        "kernel": run("uname", &["-srm"]),
        "rustc": run("rustc", &["--version"]),
    })
}

/// The host's name, fit for a file name.
pub fn host() -> String {
    let name = read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| run("hostname", &[]));
    file_word(name.unwrap_or_default().trim())
}

/// `name` with everything but letters, digits and dots turned into dashes; `unknown` if nothing is left.
pub fn file_word(name: &str) -> String {
    let word: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let word = word.trim_matches(['-', '.']).to_owned();
    if word.is_empty() { "unknown".to_owned() } else { word }
}

/// Today in UTC, as `2026-12-04`.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    date(seconds / 86_400)
}

/// The date `days` after 1970-01-01 in the proleptic Gregorian calendar.
fn date(days: u64) -> String {
    // Years are counted from March, so that the leap day is a year's last day; eras are 400 years of 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + carry)
}

/// The value of the first line `key : value`.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|l| {
        let (k, v) = l.split_once(':')?;
        (k.trim() == key).then(|| v.trim().to_owned())
    })
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    output(Command::new(program).args(arguments)).ok().map(|t| t.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_786, "2026-11-29"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn host_names_fit_file_names() {
        assert_eq!(file_word("my host/1.local"), "my-host-1.local");
        assert_eq!(file_word("../"), "unknown");
    }

    #[test]
    fn fields_are_found_by_their_whole_key() {
        assert_eq!(field("model\t: 1\nmodel name\t: X Y\n", "model name").as_deref(), Some("X Y"));
        assert_eq!(field("a: 1", "b"), None);
    }
}
