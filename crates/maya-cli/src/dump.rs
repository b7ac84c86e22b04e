//! `--dump-routes`: the experts that every token took, as a trace.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow, bail};
use glm_graph::Observer;

use crate::engine::Engine;
use crate::output::{count, note};
use crate::routes::{EXPERTS_LIMIT, TraceWriter};

/// A trace being written, or none.
pub struct Dump(Option<Arc<Mutex<Recorder>>>);

impl Dump {
    /// Starts the file and looks over the engine's shoulder from now on.
    ///
    /// # Errors
    /// The file cannot be written, or the model has no experts.
    pub fn start(path: Option<&Path>, engine: &mut Engine) -> Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        if engine.exec.cpu().is_none() {
            bail!("--dump-routes: routes are seen where the CPU computes; add --device cpu");
        }
        let config = engine.model.config();
        let layers = config.trunk.saturating_sub(config.dense_layers);
        if layers == 0 || config.experts > EXPERTS_LIMIT {
            bail!(
                "--dump-routes: {} has {layers} layers of {} experts; a trace has at least one layer and at most \
                 {EXPERTS_LIMIT} experts",
                engine.name,
                config.experts
            );
        }
        let metadata = [("experts", config.experts.to_string()), ("model", engine.name.clone())];
        let recorder = Arc::new(Mutex::new(Recorder {
            writer: TraceWriter::create(path, None, layers, config.experts_used, &metadata)?,
            dense: config.dense_layers,
            row: layers * config.experts_used,
            seen: vec![0; layers],
            pending: VecDeque::new(),
            failed: None,
        }));
        engine.exec.observe(Some(Box::new(Shared(Arc::clone(&recorder)))));
        Ok(Self(Some(recorder)))
    }

    /// Ends the trace and gives the file its name.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(self, engine: &mut Engine) -> Result<()> {
        let Some(recorder) = self.0 else { return Ok(()) };
        engine.exec.observe(None);
        let recorder =
            Arc::into_inner(recorder).ok_or_else(|| anyhow!("the trace is still being written"))?;
        let recorder = recorder.into_inner().map_err(|_| anyhow!("the writer of the trace panicked"))?;
        if let Some(error) = recorder.failed {
            return Err(error);
        }
        if !recorder.pending.is_empty() {
            bail!("the trace has {} tokens whose last layers were not seen", recorder.pending.len());
        }
        let (tokens, path) = (recorder.writer.written(), recorder.writer.path().display().to_string());
        recorder.writer.commit()?;
        note(format_args!("{path}: routes of {} tokens", count(tokens)));
        Ok(())
    }
}

/// Puts tokens together from layers: a pass shows all its tokens' first layer, then their second.
struct Recorder {
    writer: TraceWriter,
    /// Layers before the first with experts.
    dense: usize,
    /// Ids of a token.
    row: usize,
    /// Tokens that each layer has shown.
    seen: Vec<u64>,
    /// Tokens that are not whole, the first of them the one after those written.
    pending: VecDeque<Vec<u16>>,
    failed: Option<anyhow::Error>,
}

impl Recorder {
    fn route(&mut self, layer: usize, experts: &[u32]) -> Result<()> {
        let Some(seen) = layer.checked_sub(self.dense).and_then(|at| self.seen.get_mut(at)) else {
            bail!("layer {layer} has a route, and is no layer of experts")
        };
        let Ok(at) = usize::try_from(*seen - self.writer.written()) else {
            bail!("too many tokens in a pass")
        };
        *seen += 1;
        if at >= self.pending.len() {
            self.pending.push_back(Vec::with_capacity(self.row));
        }
        let token = &mut self.pending[at];
        token.extend(experts.iter().map(|&id| id as u16));
        while let Some(whole) = self.pending.front().filter(|token| token.len() >= self.row) {
            self.writer.token(whole)?;
            self.pending.pop_front();
        }
        Ok(())
    }
}

/// The recorder as the executor knows it.
struct Shared(Arc<Mutex<Recorder>>);

impl Observer for Shared {
    fn route(&mut self, layer: usize, _position: usize, experts: &[u32], _weights: &[f32]) {
        let Ok(mut recorder) = self.0.lock() else { return };
        if recorder.failed.is_none() {
            recorder.failed = recorder.route(layer, experts).err();
        }
    }
}
