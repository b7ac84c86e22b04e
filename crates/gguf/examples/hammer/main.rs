//! Fuzzes the header parser without libFuzzer: blind changes to the seeds, on any machine with Rust.
//!
//! `cargo run --release -p gguf --example hammer -- SECONDS [SEED]` runs it; with `--write-seeds FOLDER` it writes the
//! seeds that the coverage-guided target starts from.

mod exercise;
mod limited;
mod mutate;
mod seeds;

use std::io::Write;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: limited::Limited = limited::Limited;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const USAGE: &str = "usage: hammer SECONDS [SEED], or hammer --write-seeds FOLDER";
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seeds = seeds::seeds();
    if let [flag, folder] = &args[..]
        && flag == "--write-seeds"
    {
        std::fs::create_dir_all(folder)?;
        for (name, bytes) in seeds {
            std::fs::write(std::path::Path::new(folder).join(name), bytes)?;
        }
        return Ok(());
    }
    let seconds = Duration::from_secs(args.first().ok_or(USAGE)?.parse().map_err(|_| USAGE)?);
    let seed = args.get(1).map_or(Ok(1), |it| it.parse()).map_err(|_| USAGE)?;
    let mut random = mutate::Random::new(seed);
    let start = Instant::now();
    let (mut n, mut accepted) = (0_u64, 0_u64);
    while start.elapsed() < seconds {
        for _ in 0..1000 {
            let mut bytes = seeds[random.below(seeds.len())].1.clone();
            mutate::mutate(&mut bytes, &seeds[random.below(seeds.len())].1, &mut random);
            exercise::exercise(&bytes);
            accepted += u64::from(gguf::Header::parse(&bytes, 1 << 46).is_ok());
            n += 1;
        }
    }
    writeln!(
        std::io::stdout(),
        "{n} headers in {} s, {accepted} accepted, no fault",
        start.elapsed().as_secs()
    )?;
    Ok(())
}
