//! `maya synth`: a file of the real shape with random weights.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::args::SynthArgs;
use crate::interrupt;
use crate::output::{AtomicFile, bytes, note};
use crate::progress::Progress;
use crate::synth::{plan, write};

/// Writes the file under its name whole, or not at all.
pub fn run(args: &SynthArgs) -> Result<()> {
    let (layout, table) = write::layout(&args.shape)?;
    let total = table.iter().map(plan::bytes).sum::<Result<u64>>()?;
    let out = args.out.display();
    let started = Instant::now();
    let file = AtomicFile::create(&args.out)?;
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
