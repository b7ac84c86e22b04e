//! `--log-level` and `--log-format`: where tracing events of all crates go.

use std::io::{self, Write};

use anyhow::{Context, Result};
use tracing_subscriber::filter::EnvFilter;

use crate::args::{LogArgs, LogFormat};
use crate::{output, progress};

/// Standard error that swallows write errors: a log must not fail a run because its reader left.
struct Quiet;

impl Write for Quiet {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Installs the subscriber. `default` is the level where the user gave none.
pub fn install(args: &LogArgs, default: &str) -> Result<()> {
    let level = args.log_level.as_deref().unwrap_or(default);
    // Target "maya" carries the sentences for the user in JSON form; they are shown at any level but "off".
    let filter = EnvFilter::try_new(if args.log_format == LogFormat::Json && level != "off" {
        format!("{level},maya=info")
    } else {
        level.to_owned()
    })
    .with_context(|| format!("--log-level {level:?} is neither a level nor a filter"))?;
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Quiet).with_ansi(progress::fancy());
    match args.log_format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => {
            subscriber.json().init();
            output::sentences_as_json();
        }
    }
    Ok(())
}
