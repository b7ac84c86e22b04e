//! Routing traces: safetensors files with tensor `routes` U16 [tokens, layers, k], the experts that each MoE layer took for
//! each token in rank order, and `experts` among the metadata.

use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::interrupt;
use crate::output::{AtomicFile, excerpt};
use crate::safetensors::Opened;

/// Experts of a layer, and layers: what is replayed counts both with 16 bits.
pub const EXPERTS_LIMIT: usize = u16::MAX as usize;
/// As there.
pub const LAYERS_LIMIT: usize = u16::MAX as usize;

/// Layers times experts of a trace: 21 times the published model's. Tables of this size are kept, so a header must not
/// be able to ask for more than a machine has.
pub const TABLE_LIMIT: usize = 1 << 18;

/// A trace in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Tokens.
    pub tokens: usize,
    /// MoE layers.
    pub layers: usize,
    /// Experts that a layer takes for a token.
    pub k: usize,
    /// Experts of a layer: the metadata's number, or one more than the largest id where it has none.
    pub experts: usize,
    ids: Vec<u16>,
}

impl Trace {
    /// Reads a whole trace and checks every id.
    ///
    /// # Errors
    /// No such file, no safetensors file, another type or shape, no tokens, `experts` that is no number, an id of that
    /// number or above, an expert twice in a row: all by name.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let mut opened = Opened::new(path)?;
        let (at, shape) = opened.tensor("routes", "U16", 3)?;
        let &[tokens, layers, k] = shape.as_slice() else { bail!("{name}: routes has no three dimensions") };
        if let Some((_, what)) =
            [(tokens, "tokens"), (layers, "layers"), (k, "experts a token")].iter().find(|(n, _)| *n == 0)
        {
            bail!("{name}: tensor routes of shape {shape:?} has no {what}");
        }
        let stated = experts(&opened.header).with_context(|| format!("{name}: metadata field experts"))?;
        if let Some(n) = stated.filter(|&n| (n as u64) < k) {
            bail!("{name}: tensor routes takes {k} experts a token, and metadata field experts is {n}");
        }
        if layers > LAYERS_LIMIT as u64 {
            bail!("{name}: tensor routes has {layers} layers; up to {LAYERS_LIMIT} are replayed");
        }
        opened.seek(at)?;
        // None of them is zero and their product is the size of bytes that are there.
        let (tokens, layers, k) = (usize::try_from(tokens)?, usize::try_from(layers)?, usize::try_from(k)?);
        let mut trace = Self { tokens, layers, k, experts: stated.unwrap_or(0), ids: Vec::new() };
        let row = layers * k;
        let mut file = BufReader::with_capacity(1 << 20, opened.file);
        let mut bytes = vec![0; row * 2];
        let mut seen = Seen::default();
        trace.ids.reserve_exact(tokens * row);
        for token in 0..tokens {
            file.read_exact(&mut bytes).with_context(|| format!("{name} cannot be read"))?;
            trace.ids.extend(bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)));
            for (layer, ids) in trace.ids[token * row..].chunks_exact(k).enumerate() {
                if interrupt::pressed() {
                    bail!("interrupted while {name} was read");
                }
                let at = || format!("{name}: tensor routes at token {token}, layer {layer}");
                if let Some(&id) = ids.iter().find(|&&id| stated.is_some_and(|n| usize::from(id) >= n)) {
                    let n = stated.unwrap_or(0);
                    bail!("{}: expert {id} is out of range: metadata field experts is {n}", at());
                }
                if let Some(id) = seen.twice(ids) {
                    bail!("{}: expert {id} is there twice", at());
                }
            }
        }
        if stated.is_none() {
            trace.experts = trace.ids.iter().max().map_or(0, |&id| usize::from(id) + 1);
        }
        if trace.experts > EXPERTS_LIMIT {
            bail!("{name}: tensor routes names expert {EXPERTS_LIMIT}; ids go up to {}", EXPERTS_LIMIT - 1);
        }
        if layers.saturating_mul(trace.experts) > TABLE_LIMIT {
            bail!(
                "{name}: tensor routes has {layers} layers of {} experts, more than the {TABLE_LIMIT} experts in all \
                 that are believed",
                trace.experts
            );
        }
        Ok(trace)
    }

    /// What `layer` took for `token`, in rank order.
    pub fn route(&self, token: usize, layer: usize) -> &[u16] {
        let at = (token * self.layers + layer) * self.k;
        &self.ids[at..at + self.k]
    }

    /// How often each expert was taken, `[layers][experts]`.
    pub fn counts(&self) -> Vec<Vec<u64>> {
        let mut counts = vec![vec![0; self.experts]; self.layers];
        for row in self.ids.chunks_exact(self.layers * self.k) {
            for (layer, ids) in counts.iter_mut().zip(row.chunks_exact(self.k)) {
                for &id in ids {
                    layer[usize::from(id)] += 1;
                }
            }
        }
        counts
    }
}

/// Finds an id that is twice in a row, whatever the row's length, without clearing anything between rows.
#[derive(Default)]
struct Seen {
    last: Vec<u64>,
    row: u64,
}

impl Seen {
    fn twice(&mut self, ids: &[u16]) -> Option<u16> {
        self.row += 1;
        self.last.resize(usize::from(u16::MAX) + 1, 0);
        let row = self.row;
        ids.iter().copied().find(|&id| std::mem::replace(&mut self.last[usize::from(id)], row) == row)
    }
}

fn experts(header: &Value) -> Result<Option<usize>> {
    let Some(value) = header.get("__metadata__").and_then(|m| m.get("experts")) else { return Ok(None) };
    match value
        .as_str()
        .and_then(|text| text.parse::<usize>().ok())
        .filter(|n| (1..=EXPERTS_LIMIT).contains(n))
    {
        Some(n) => Ok(Some(n)),
        None => {
            let value = excerpt(&value.to_string());
            bail!("{value} is not a number between 1 and {EXPERTS_LIMIT} written as text")
        }
    }
}

/// Writes a trace token by token.
pub struct TraceWriter {
    file: AtomicFile,
    path: PathBuf,
    layers: usize,
    k: usize,
    metadata: String,
    /// Announced tokens; `None` where their number is known only at the end.
    announced: Option<u64>,
    written: u64,
    header: usize,
    bytes: Vec<u8>,
}

impl TraceWriter {
    /// Starts the file. `metadata` is names and values, `experts` among them. Without a number of `tokens` the header is
    /// written at the end, which a pipe does not allow.
    pub fn create(
        path: &Path,
        tokens: Option<u64>,
        layers: usize,
        k: usize,
        metadata: &[(&str, String)],
    ) -> Result<Self> {
        let pairs: Vec<String> = metadata
            .iter()
            .map(|(name, value)| format!("\"{name}\": {}", Value::from(value.as_str())))
            .collect();
        let mut it = Self {
            // A pipe is refused now, not after the work.
            file: match tokens {
                Some(_) => AtomicFile::create(path)?,
                None => AtomicFile::create_seekable(path)?,
            },
            path: path.to_owned(),
            layers,
            k,
            metadata: pairs.join(", "),
            announced: tokens,
            written: 0,
            header: 0,
            bytes: Vec::new(),
        };
        let header = match tokens {
            Some(tokens) => it.header(tokens, 0)?,
            // As long as the header of the largest trace that can be.
            None => vec![b' '; it.header(MOST_TOKENS, 0)?.len()],
        };
        it.header = header.len();
        it.put(&header)?;
        Ok(it)
    }

    /// Length and text of the header, spaced as Python's `json.dumps` does and padded to 8 bytes or to `room`.
    fn header(&self, tokens: u64, room: usize) -> Result<Vec<u8>> {
        let (layers, k) = (self.layers as u64, self.k as u64);
        let size = [layers, k, 2].iter().try_fold(tokens, |n, &x| n.checked_mul(x));
        let Some(size) = size else {
            bail!("{tokens} tokens of {layers} layers with {k} experts are larger than any file")
        };
        let mut text = format!(
            "{{\"__metadata__\": {{{}}}, \"routes\": {{\"dtype\": \"U16\", \"shape\": [{tokens}, {layers}, {k}], \
             \"data_offsets\": [0, {size}]}}}}",
            self.metadata
        )
        .into_bytes();
        text.resize(text.len().next_multiple_of(8).max(room.saturating_sub(8)), b' ');
        let mut header = (text.len() as u64).to_le_bytes().to_vec();
        header.extend(text);
        Ok(header)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).with_context(|| format!("{} cannot be written", self.path.display()))
    }

    /// Appends a token: its experts, layer by layer.
    pub fn token(&mut self, ids: &[u16]) -> Result<()> {
        assert_eq!(ids.len(), self.layers * self.k, "a token has k experts in each layer");
        assert!(self.announced.is_none_or(|n| self.written < n), "tokens are announced at the start");
        self.written += 1;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        let put = self.put(&bytes);
        self.bytes = bytes;
        put
    }

    /// Tokens written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name.
    pub fn commit(mut self) -> Result<()> {
        match self.announced {
            Some(n) => assert_eq!(self.written, n, "every announced token is written"),
            None => {
                let header = self.header(self.written, self.header)?;
                assert_eq!(header.len(), self.header, "room for the header was left");
                self.file.rewrite_start(&header)?;
            }
        }
        self.file.commit()
    }
}

/// Room that is left for a header whose numbers come later: a trace of so many tokens takes years.
const MOST_TOKENS: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn metadata(experts: &str) -> Vec<(&'static str, String)> {
        vec![("experts", experts.to_owned())]
    }

    #[test]
    fn rows_come_back_with_and_without_an_announced_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        for announced in [Some(2), None] {
            let mut writer = TraceWriter::create(&path, announced, 2, 2, &metadata("6")).unwrap();
            writer.token(&[0, 5, 1, 2]).unwrap();
            writer.token(&[3, 1, 0, 4]).unwrap();
            writer.commit().unwrap();
            let trace = Trace::read(&path).unwrap();
            assert_eq!((trace.tokens, trace.layers, trace.k, trace.experts), (2, 2, 2, 6));
            assert_eq!(trace.route(1, 0), [3, 1]);
            assert_eq!(trace.route(0, 1), [1, 2]);
            assert_eq!(trace.counts(), [[1, 1, 0, 1, 0, 1], [1, 1, 1, 0, 1, 0]]);
            // Another reader of the format agrees.
            let bytes = fs::read(&path).unwrap();
            let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(file.tensor("routes").unwrap().shape(), [2, 2, 2]);
        }
    }

    #[test]
    fn an_empty_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        TraceWriter::create(&path, None, 2, 2, &metadata("6")).unwrap().commit().unwrap();
        let error = format!("{:#}", Trace::read(&path).unwrap_err());
        assert!(error.contains("shape [0, 2, 2] has no tokens"), "{error}");
    }

    #[test]
    fn bad_traces_get_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.safetensors");
        let check = |header: &str, ids: &[u16], wanted: &str| {
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
            fs::write(&path, bytes).unwrap();
            let error = format!("{:#}", Trace::read(&path).err().unwrap());
            assert!(error.contains("bad.safetensors") && error.contains(wanted), "{wanted}: {error}");
        };
        let with = |dtype: &str, shape: &str, to: usize, experts: &str| {
            format!(
                r#"{{"__metadata__":{{"experts":{experts}}},"routes":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{to}]}}}}"#
            )
        };
        check("{}", &[], "tensor routes: the file does not have it");
        check(&with("F32", "[1,1,1]", 4, "\"9\""), &[0, 0], "its type is F32, not U16");
        check(&with("U16", "[1,2]", 4, "\"9\""), &[0, 1], "do not fit");
        check(&with("U16", "[1,1,3]", 6, "\"9\""), &[0, 1], "do not fit");
        check(&with("U16", "[4294967296,4294967296,1]", 0, "\"9\""), &[], "do not fit");
        check(&with("U16", "[1,0,2]", 0, "\"9\""), &[], "has no layers");
        check(&with("U16", "[1,1,2]", 4, "\"x\""), &[0, 1], "metadata field experts: \"x\"");
        check(&with("U16", "[1,1,2]", 4, "9"), &[0, 1], "metadata field experts: 9");
        check(&with("U16", "[1,1,2]", 4, "\"1\""), &[0, 1], "takes 2 experts a token");
        check(&with("U16", "[1,1,2]", 4, "\"9\""), &[0, 9], "token 0, layer 0: expert 9 is out of range");
        // 16 bits counted 65,536 experts as none, and a megabyte of metadata was quoted whole.
        check(
            &with("U16", "[1,1,2]", 4, "\"65536\""),
            &[0, 1],
            "\"65536\" is not a number between 1 and 65535",
        );
        let unnumbered = r#"{"routes":{"dtype":"U16","shape":[1,1,2],"data_offsets":[0,4]}}"#;
        check(unnumbered, &[0, 65535], "names expert 65535; ids go up to 65534");
        let long = format!("\"{}\"", "7".repeat(1 << 20));
        check(&with("U16", "[1,1,2]", 4, &long), &[0, 1], "… (1,048,578 bytes) is not a number");
        let ids = vec![0; 65_536];
        check(
            &with("U16", "[1,65536,1]", 131_072, "\"1\""),
            &ids,
            "has 65536 layers; up to 65535 are replayed",
        );
        check(&with("U16", "[1,2,2]", 8, "\"9\""), &[0, 1, 4, 4], "layer 1: expert 4 is there twice");
    }
}
