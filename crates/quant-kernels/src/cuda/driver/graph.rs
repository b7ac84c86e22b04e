//! Graphs: work recorded from a stream once, and launched with one call.

use std::fmt;

use cudarc::driver::sys;

use super::Handle;
use super::context::Context;
use super::failure::DriverError;
use super::stream::Stream;

/// Recorded work, ready to launch.
pub struct Graph {
    context: Context,
    executable: Handle<sys::CUgraphExec_st>,
    n_nodes: usize,
}

impl Graph {
    /// Records what `work` puts on the stream, without running it. Other threads may call the driver meanwhile; `work`
    /// neither waits nor allocates.
    pub fn capture<E: From<DriverError>>(
        stream: &Stream,
        work: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<Self, E> {
        let context = stream.context();
        context.make_current()?;
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live handle.
        let result = unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) };
        context.check("cuStreamBeginCapture", result)?;
        let mut capture = Capture { stream, open: true };
        let worked = work(stream);
        let recorded = capture.end();
        worked?;
        Ok(recorded?.instantiate()?)
    }

    /// How many kernels, copies, fills and empty nodes it has.
    pub fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Brings what the device needs of it there, so that the first launch is not slower.
    pub fn upload(&self, stream: &Stream) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: both are live handles.
        let result = unsafe { sys::cuGraphUpload(self.executable.0, stream.raw()) };
        self.context.check("cuGraphUpload", result)
    }

    /// Puts a run of it on the stream. Runs of one graph follow each other.
    ///
    /// # Safety
    ///
    /// The contracts of everything that was recorded hold for this run: memory that it names is there, and nobody else
    /// uses it until the stream has passed the run.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), DriverError> {
        self.context.make_current()?;
        // SAFETY: both are live handles; the rest is the caller's contract.
        let result = unsafe { sys::cuGraphLaunch(self.executable.0, stream.raw()) };
        self.context.check("cuGraphLaunch", result)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: our handle, destroyed once; a run in flight is finished by the driver.
        self.context.free("cuGraphExecDestroy", || unsafe { sys::cuGraphExecDestroy(self.executable.0) });
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} nodes)", self.n_nodes)
    }
}

/// A stream that records; ended also when `work` panics, or the stream would stay unusable.
struct Capture<'a> {
    stream: &'a Stream,
    open: bool,
}

impl Capture<'_> {
    fn end(&mut self) -> Result<Recorded, DriverError> {
        self.open = false;
        let context = self.stream.context();
        context.make_current()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream records; `graph` is a place for one pointer.
        let result = unsafe { sys::cuStreamEndCapture(self.stream.raw(), &mut graph) };
        context.check("cuStreamEndCapture", result)?;
        Ok(Recorded { context: context.clone(), graph })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.end();
        }
    }
}

/// The template; a graph to launch is made from it.
struct Recorded {
    context: Context,
    graph: sys::CUgraph,
}

impl Recorded {
    fn instantiate(&self) -> Result<Graph, DriverError> {
        let mut n_nodes = 0;
        // SAFETY: our handle; without an array only the count is written.
        let result = unsafe { sys::cuGraphGetNodes(self.graph, std::ptr::null_mut(), &mut n_nodes) };
        self.context.check("cuGraphGetNodes", result)?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: our handle; `executable` is a place for one pointer.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, self.graph, 0) };
        self.context.check("cuGraphInstantiateWithFlags", result)?;
        Ok(Graph { context: self.context.clone(), executable: Handle(executable), n_nodes })
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.graph.is_null() {
            // SAFETY: our handle, destroyed once.
            self.context.free("cuGraphDestroy", || unsafe { sys::cuGraphDestroy(self.graph) });
        }
    }
}
