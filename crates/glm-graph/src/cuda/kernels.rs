//! The device code that a model's passes need, loaded.

use std::collections::HashMap;

use quant_kernels::cuda::{Kernel, KernelStore, QUANTIZE, Unit, matvec_pair_unit, matvec_unit, rows_units};
use quant_kernels::{Family, Quant};

use super::product::PAIRS;
use super::span::RowsKernels;
use super::units;
use crate::error::ExecError;

/// Shared memory that any block may have to ask for.
const SMEM: u32 = 48 << 10;

/// Entries by what they are for.
pub(super) struct Kernels {
    matvec: HashMap<[Quant; 2], Kernel>,
    tables: HashMap<Quant, u64>,
    pub(super) site: Kernel,
    pub(super) site4: Kernel,
    pub(super) kda: Kernel,
    pub(super) kda128: Kernel,
    pub(super) kda_pair128: Kernel,
    pub(super) router: Kernel,
    pub(super) router_logits: Kernel,
    pub(super) router_choose: Kernel,
    pub(super) dsa: Dsa,
    pub(super) rows: RowsKernels,
    pub(super) draw: Draw,
}

/// Entries of a step's beginning and end.
pub(super) struct Draw {
    pub(super) begin: Kernel,
    pub(super) adjust: Kernel,
    pub(super) count: Kernel,
    pub(super) draw: Kernel,
}

impl Draw {
    pub(super) fn load(store: &KernelStore) -> Result<Self, ExecError> {
        let (begin, sample) = (store.load(&units::BEGIN)?, store.load(&units::SAMPLE)?);
        Ok(Self {
            begin: begin.kernel("begin")?,
            adjust: sample.kernel("sample_adjust")?,
            count: sample.kernel("sample_count")?,
            draw: sample.kernel("sample_draw")?,
        })
    }
}

/// Entries of latent attention.
pub(super) struct Dsa {
    pub(super) prepare: Kernel,
    pub(super) scores: Kernel,
    pub(super) choose: Kernel,
    pub(super) attend: Kernel,
    pub(super) softmax: Kernel,
    pub(super) mix: Kernel,
}

/// Units for a model whose matrices have these formats. Products with many vectors take longest to compile.
fn needed(formats: &[Quant]) -> Vec<&'static Unit> {
    let rows = [Family::Wide, Family::Narrow, Family::Float].into_iter().flat_map(rows_units).copied();
    let pairs = PAIRS.into_iter().filter(|pair| pair.iter().all(|quant| formats.contains(quant)));
    let matvecs =
        formats.iter().filter_map(|quant| matvec_unit(*quant)).chain(pairs.filter_map(matvec_pair_unit));
    rows.chain([&QUANTIZE]).chain(units::UNITS).chain(matvecs).collect()
}

impl Kernels {
    pub(super) fn load(
        store: &KernelStore,
        formats: &[Quant],
        tables: HashMap<Quant, u64>,
        most: u32,
    ) -> Result<Self, ExecError> {
        store.load_all(&needed(formats))?;
        let entry = |unit: &'static Unit, name: &str| -> Result<Kernel, ExecError> {
            let kernel = store.load(unit)?.kernel(name)?;
            if most > SMEM {
                kernel.set_max_dynamic_smem(most)?;
            }
            Ok(kernel)
        };
        let mut matvec = HashMap::new();
        for &quant in formats {
            let unit = matvec_unit(quant).ok_or_else(|| ExecError::NoKernel(quant.name().to_owned()))?;
            matvec.insert([quant; 2], entry(unit, unit.entries[0])?);
        }
        for pair in PAIRS.into_iter().filter(|pair| pair.iter().all(|quant| formats.contains(quant))) {
            if let Some(unit) = matvec_pair_unit(pair) {
                matvec.insert(pair, entry(unit, unit.entries[0])?);
            }
        }
        Ok(Self {
            matvec,
            tables,
            site: entry(&units::SITE, "site")?,
            site4: entry(&units::SITE, "site4")?,
            kda: entry(&units::KDA, "kda_step")?,
            kda128: entry(&units::KDA, "kda_step128")?,
            kda_pair128: entry(&units::KDA, "kda_pair128")?,
            router: entry(&units::ROUTER, "router")?,
            router_logits: entry(&units::ROUTER, "router_logits")?,
            router_choose: entry(&units::ROUTER, "router_choose")?,
            rows: RowsKernels::load(entry)?,
            draw: Draw::load(store)?,
            dsa: Dsa {
                prepare: entry(&units::DSA_PREPARE, "dsa_prepare")?,
                scores: entry(&units::DSA_INDEX, "index_scores")?,
                choose: entry(&units::DSA_INDEX, "top_choose")?,
                attend: entry(&units::DSA_ATTEND, "attend_scores")?,
                softmax: entry(&units::DSA_ATTEND, "attend_softmax")?,
                mix: entry(&units::DSA_ATTEND, "attend_mix")?,
            },
        })
    }

    pub(super) fn matvec(&self, formats: [Quant; 2]) -> &Kernel {
        &self.matvec[&formats]
    }

    /// Where a format's tables lie; 0 if it has none.
    pub(super) fn tables(&self, quant: Quant) -> u64 {
        self.tables.get(&quant).copied().unwrap_or(0)
    }
}
