//! `maya synth`: a file of the real shape with random weights, or a routing trace.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::args::SynthArgs;
use crate::interrupt;
use crate::output::{AtomicFile, bytes, count, note};
use crate::progress::Progress;
use crate::routes::TraceWriter;
use crate::synth::trace::Drawn;
use crate::synth::{plan, write};

/// Writes the file under its name whole, or not at all.
pub fn run(args: &SynthArgs) -> Result<()> {
    match (&args.trace.trace, &args.out) {
        (Some(out), _) => trace(args, out),
        (None, Some(out)) => weights(args, out),
        (None, None) => bail!("there is no file to write: name one, or a trace with --trace"),
    }
}

fn weights(args: &SynthArgs, path: &Path) -> Result<()> {
    let (layout, table) = write::layout(&args.shape)?;
    let total = table.iter().map(plan::bytes).sum::<Result<u64>>()?;
    let out = path.display();
    let started = Instant::now();
    let file = AtomicFile::create(path)?;
    let mut progress = Progress::new("writing weights", "MB", total / 1_000_000);
    let written = write::write(&args.shape, &layout, &table, file, &mut |done| {
        progress.at(done / 1_000_000);
        !interrupt::pressed()
    });
    progress.finish();
    if interrupt::pressed() {
        bail!("interrupted: {out} was not written");
    }
    written.with_context(|| format!("{out} was not written"))?.commit()?;
    let seconds = started.elapsed().as_secs_f64();
    note(format_args!(
        "{out}: {} tensors, {} in {seconds:.1} s ({} a second)",
        table.len(),
        bytes(total),
        bytes((total as f64 / seconds.max(1e-9)) as u64)
    ));
    Ok(())
}

fn trace(args: &SynthArgs, path: &Path) -> Result<()> {
    let (shape, it) = (&args.shape, &args.trace);
    let mut drawn = Drawn::new(shape, it)?;
    let (layers, k) = drawn.shape();
    let metadata = [
        ("experts", shape.experts.to_string()),
        ("sigma", format!("{:?}", it.sigma)),
        ("topic", it.topic.to_string()),
        ("seed", shape.seed.to_string()),
    ];
    let (skip, tokens) = (u64::from(it.skip), u64::from(it.tokens));
    let mut writer = TraceWriter::create(path, Some(tokens), layers, k, &metadata)?;
    let mut progress = Progress::new("drawing routes", "tokens", skip + tokens);
    let mut ids = Vec::new();
    for done in 0..skip + tokens {
        if interrupt::pressed() {
            bail!("interrupted: {} was not written", path.display());
        }
        if drawn.next(&mut ids) {
            writer.token(&ids)?;
        }
        progress.at(done + 1);
    }
    progress.finish();
    writer.commit()?;
    note(format_args!(
        "{}: {} tokens, {layers} layers, {k} of {} experts",
        path.display(),
        count(tokens),
        shape.experts
    ));
    Ok(())
}
