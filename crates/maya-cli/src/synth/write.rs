//! Fills a planned file. Random blocks are made once a type and laid down again at a new offset for each tensor, as fast
//! as memory copies: the weights only have to be valid and not all equal.

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Context, Result, anyhow, bail};
use gguf::{GgmlType, Layout, Writer};

use super::blocks::{self, Random};
use super::plan::{self, Fill, Tensor};
use super::shape::Shape;

/// Random blocks of one type. 48 MiB is far beyond any cache, so a reader meets no shortcut.
const POOL_BYTES: u64 = 48 << 20;
/// Bytes between two looks at Ctrl-C.
const PIECE: usize = 4 << 20;

/// Metadata and table as a layout, and the table.
pub fn layout(shape: &Shape) -> Result<(Layout, Vec<Tensor>)> {
    shape.check()?;
    let table = plan::tensors(shape);
    let mut layout = Layout::new();
    for (key, value) in plan::metadata(shape) {
        layout.set(&key, value);
    }
    for tensor in &table {
        plan::bytes(tensor)?;
        layout.tensor(&tensor.name, tensor.ty, &tensor.dims)?;
    }
    Ok((layout, table))
}

/// Writes the whole file. `on` hears the bytes of tensors written so far and answers whether to go on.
pub fn write<W: Write>(
    shape: &Shape,
    layout: &Layout,
    table: &[Tensor],
    out: W,
    on: &mut dyn FnMut(u64) -> bool,
) -> Result<W> {
    let mut filler = Filler { shape, pools: HashMap::new(), random: Random::new(shape.seed, 0), done: 0, on };
    let mut writer = layout.write_to(out)?;
    for tensor in table {
        let bytes = plan::bytes(tensor)?;
        writer.begin(&tensor.name)?;
        match tensor.fill {
            Fill::Blocks => filler.blocks(&mut writer, tensor.ty, bytes)?,
            _ => filler.values(&mut writer, tensor, bytes / 4)?,
        }
    }
    writer.finish().context("the end of the file")
}

struct Filler<'a> {
    shape: &'a Shape,
    pools: HashMap<GgmlType, Vec<u8>>,
    random: Random,
    done: u64,
    on: &'a mut dyn FnMut(u64) -> bool,
}

impl Filler<'_> {
    fn put<W: Write>(
        done: &mut u64,
        on: &mut dyn FnMut(u64) -> bool,
        writer: &mut Writer<W>,
        bytes: &[u8],
    ) -> Result<()> {
        for piece in bytes.chunks(PIECE) {
            writer.write(piece)?;
            *done += piece.len() as u64;
            if !on(*done) {
                bail!("interrupted");
            }
        }
        Ok(())
    }

    fn blocks<W: Write>(&mut self, writer: &mut Writer<W>, ty: GgmlType, mut left: u64) -> Result<()> {
        if !self.pools.contains_key(&ty) {
            let want = left.clamp(1 << 20, POOL_BYTES) as usize;
            let mut random = Random::new(self.shape.seed, u64::from(ty.id()) + 1);
            let pool = blocks::random(ty, self.shape.std, want, &mut random)
                .ok_or_else(|| anyhow!("there are no random blocks of type {}", ty.name()))?;
            self.pools.insert(ty, pool);
        }
        let Some(pool) = self.pools.get(&ty) else {
            bail!("there are no random blocks of type {}", ty.name())
        };
        let block = ty.block_bytes() as usize;
        let mut at = self.random.below((pool.len() / block) as u64) as usize * block;
        while left > 0 {
            let n = left.min((pool.len() - at) as u64) as usize;
            Self::put(&mut self.done, self.on, writer, &pool[at..at + n])?;
            left -= n as u64;
            at = 0;
        }
        Ok(())
    }

    fn values<W: Write>(&mut self, writer: &mut Writer<W>, tensor: &Tensor, n: u64) -> Result<()> {
        let row = tensor.dims[0] as f32;
        let skew = self.shape.skew as f32;
        let value = |random: &mut Random| -> f32 {
            let z = random.normal();
            match tensor.fill {
                Fill::Norm => 1.0 + 0.05 * z,
                Fill::Bias => 0.1 * z,
                Fill::HcBase => 0.3 * z,
                Fill::HcScale => 0.5 + 0.1 * z,
                Fill::HcFn => 0.5 / row.sqrt() * z,
                Fill::Conv => 0.4 * z,
                Fill::SsmA => -(0.5 * z).exp(),
                Fill::Router => z / row.sqrt(),
                Fill::Popularity => 0.3 * skew * z,
                Fill::Blocks => 0.0,
            }
        };
        let mut bytes = Vec::with_capacity(PIECE);
        let mut left = n;
        while left > 0 {
            let some = left.min(PIECE as u64 / 4);
            bytes.clear();
            for _ in 0..some {
                bytes.extend_from_slice(&value(&mut self.random).to_le_bytes());
            }
            Self::put(&mut self.done, self.on, writer, &bytes)?;
            left -= some;
        }
        Ok(())
    }
}

/// For tests: the published model as a header over a file of holes. `None` where the filesystem has none of 96 GB, which is
/// said with `what` is skipped.
#[cfg(test)]
pub fn full_of_holes(path: &std::path::Path, what: &str) -> Option<std::fs::File> {
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        shape: Shape,
    }
    let (layout, _) = layout(&Line::parse_from(["synth"]).shape).unwrap();
    let mut file = std::fs::File::create(path).unwrap();
    drop(layout.write_to(&mut file).unwrap());
    if let Err(e) = file.set_len(layout.file_len().unwrap()) {
        golden::skipped(format_args!("{what}: this filesystem has no files of 96 GB with holes ({e})"));
        return None;
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sha2::{Digest, Sha256};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shape: Shape,
    }

    fn shape(flags: &str) -> Shape {
        Line::parse_from(std::iter::once("synth").chain(flags.split_whitespace())).shape
    }

    /// Header and size for the same flags are those of the reference generator, byte for byte.
    #[test]
    fn headers_are_the_reference_generators() {
        let sets: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/data/synth_headers.json")).unwrap();
        let sets = sets.as_array().unwrap();
        assert!(sets.len() >= 7);
        for set in sets {
            let flags = set["flags"].as_str().unwrap();
            let (layout, table) = layout(&shape(flags)).unwrap();
            assert_eq!(table.len() as u64, set["tensors"].as_u64().unwrap(), "{flags}");
            assert_eq!(layout.file_len().unwrap(), set["file_bytes"].as_u64().unwrap(), "{flags}");
            let mut header = Vec::new();
            drop(layout.write_to(&mut header).unwrap());
            assert_eq!(header.len() as u64, set["header_bytes"].as_u64().unwrap(), "{flags}");
            let sum: String = Sha256::digest(&header).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(sum, set["header_sha256"].as_str().unwrap(), "{flags}");
        }
    }

    /// The same as a list of one set, so that a difference can be seen.
    #[test]
    fn the_small_table_is_the_reference_generators() {
        let sets: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/data/synth_headers.json")).unwrap();
        let flags = sets[4]["flags"].as_str().unwrap();
        let listing: String = plan::tensors(&shape(flags))
            .iter()
            .map(|t| {
                let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
                format!("{} {} {}\n", t.name, t.ty.name(), dims.join(" "))
            })
            .collect();
        assert_eq!(listing, include_str!("../../tests/data/synth_small.txt"));
    }

    /// Stopping in the middle is an error, and the same seed gives the same bytes.
    #[test]
    fn writing_can_be_stopped_and_repeats() {
        let small = shape(
            "--layers 2 --dense 1 --experts 4 --topk-experts 2 --hidden 256 --ff 256 --moe-ff 256 --heads 1 --kda-dim 256 --q-lora 256 --kv-lora 256 --vocab 256",
        );
        let (layout, table) = layout(&small).unwrap();
        let write = |on: &mut dyn FnMut(u64) -> bool| write(&small, &layout, &table, Vec::new(), on);
        assert!(write(&mut |done| done < 100_000).is_err());
        let whole = write(&mut |_| true).unwrap();
        assert_eq!(whole.len() as u64, layout.file_len().unwrap());
        assert!(whole == write(&mut |_| true).unwrap());
    }
}
