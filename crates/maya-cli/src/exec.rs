//! What computes: the processor, or a device. Commands see one executor.

use glm_graph::{
    Checkpoint, Counters, CpuExecutor, ExecError, Executor, LayerPass, Observer, SeqId, Step, StepRow,
    Ticket, TierCounters, Token,
};

/// An executor of one of the two kinds.
pub enum Exec {
    /// On the processor.
    Cpu(Box<CpuExecutor>),
    /// On a device.
    #[cfg(feature = "cuda")]
    Cuda(Box<glm_graph::CudaExecutor>),
}

/// Calls a method of whichever it is.
macro_rules! either {
    ($it:expr, $exec:ident => $call:expr) => {
        match $it {
            Self::Cpu($exec) => $call,
            #[cfg(feature = "cuda")]
            Self::Cuda($exec) => $call,
        }
    };
}

impl Exec {
    /// The executor on the processor, if it is one.
    pub fn cpu(&self) -> Option<&CpuExecutor> {
        match self {
            Self::Cpu(exec) => Some(exec),
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => None,
        }
    }

    /// As [`cpu`](Self::cpu), to change.
    pub fn cpu_mut(&mut self) -> Option<&mut CpuExecutor> {
        match self {
            Self::Cpu(exec) => Some(exec),
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => None,
        }
    }

    /// What computes, in words: the device, or the instruction set.
    pub fn describe(&self) -> String {
        match self {
            Self::Cpu(exec) => exec.isa().to_string(),
            #[cfg(feature = "cuda")]
            Self::Cuda(exec) => exec.device().name.clone(),
        }
    }

    /// What the tiers have done; `None` without tiers.
    pub fn tier_counters(&self) -> Option<TierCounters> {
        self.cpu()?.tier_counters()
    }

    /// Bytes of experts that the tiers hold now; `None` without tiers.
    pub fn tier_resident_bytes(&self) -> Option<u64> {
        self.cpu()?.tier_resident_bytes()
    }

    /// What each MoE layer needed in the last pass; empty without tiers.
    pub fn last_pass(&self) -> &[LayerPass] {
        self.cpu().map_or(&[], CpuExecutor::last_pass)
    }

    /// What reads the drive; `None` without tiers.
    pub fn drive_report(&self) -> Option<nvme_reader::Report> {
        self.cpu()?.drive_report()
    }

    /// Counts of expert use; `None` without tiers.
    pub fn usage(&self) -> Option<tier_cache::Usage> {
        self.cpu()?.usage()
    }

    /// Shows passes to an observer, or to nobody; the one before is handed back. A device shows nothing.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        self.cpu_mut()?.observe(observer)
    }
}

impl Executor for Exec {
    fn vocab(&self) -> usize {
        either!(self, exec => exec.vocab())
    }

    fn ctx(&self) -> usize {
        either!(self, exec => exec.ctx())
    }

    fn span(&self) -> usize {
        either!(self, exec => exec.span())
    }

    fn open_sequence(&mut self) -> Result<SeqId, ExecError> {
        either!(self, exec => exec.open_sequence())
    }

    fn close_sequence(&mut self, seq: SeqId) -> Result<(), ExecError> {
        either!(self, exec => exec.close_sequence(seq))
    }

    fn len(&self, seq: SeqId) -> Result<usize, ExecError> {
        either!(self, exec => exec.len(seq))
    }

    fn prefill(&mut self, seq: SeqId, tokens: &[Token]) -> Result<(), ExecError> {
        either!(self, exec => exec.prefill(seq, tokens))
    }

    fn score(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        rows: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ExecError> {
        either!(self, exec => exec.score(seq, tokens, rows))
    }

    fn submit(&mut self, steps: &[Step]) -> Result<Ticket, ExecError> {
        either!(self, exec => exec.submit(steps))
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Vec<StepRow>, ExecError> {
        either!(self, exec => exec.poll(ticket))
    }

    fn undo(&mut self, seq: SeqId) -> Result<(), ExecError> {
        either!(self, exec => exec.undo(seq))
    }

    fn save(&self, seq: SeqId) -> Result<Checkpoint, ExecError> {
        either!(self, exec => exec.save(seq))
    }

    fn restore(&mut self, seq: SeqId, checkpoint: &Checkpoint) -> Result<(), ExecError> {
        either!(self, exec => exec.restore(seq, checkpoint))
    }

    fn counters(&self) -> Counters {
        either!(self, exec => exec.counters())
    }
}
