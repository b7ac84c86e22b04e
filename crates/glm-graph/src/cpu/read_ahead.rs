//! Weights of a mapped file that is still on the drive, asked for before the products reach them.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use gguf::Extent;

use crate::model::Model;

/// A thread that asks the system for parts of the file. Advice may block until most of what it asks for was read, and the
/// pass has better things to do. Nothing depends on the thread: what it does not bring is read when it is touched.
pub(crate) struct ReadAhead(Sender<Vec<Extent>>);

impl ReadAhead {
    /// `None` for a model in the program itself, and where no thread can be had. The thread ends with the last sender.
    pub(crate) fn start(model: &Arc<Model>) -> Option<Self> {
        if !model.gguf().shards().iter().all(|shard| shard.path.is_file()) {
            return None;
        }
        let (sender, receiver) = channel::<Vec<Extent>>();
        let model = Arc::clone(model);
        let work = move || receiver.iter().flatten().for_each(|extent| model.gguf().will_need(extent));
        std::thread::Builder::new().name("maya-read-ahead".to_owned()).spawn(work).ok()?;
        Some(Self(sender))
    }

    /// Queues parts, to be asked for in this order.
    pub(crate) fn ask(&self, extents: Vec<Extent>) {
        // Without the thread there is nobody to tell, and nothing that fails.
        let _ = self.0.send(extents);
    }

    /// Queues what every token reads.
    pub(crate) fn ask_dense(&self, model: &Model) {
        let routed = model.weights().routed_extents(model.config().trunk);
        let nextn = format!("blk.{}.", model.config().trunk);
        let (embed, output) = (&model.weights().embed.name, &model.weights().output.name);
        let dense = model.gguf().tensors().iter().filter(|tensor| {
            // An embedding that is not the head too is read a row at a time; a row is a page or two.
            let rows = tensor.name == *embed && tensor.name != *output;
            !rows && !routed.contains(&tensor.extent) && !tensor.name.starts_with(&nextn)
        });
        self.ask(dense.map(|tensor| tensor.extent).collect());
    }
}
