//! The device code of spans, loaded.

use quant_kernels::Family;
use quant_kernels::cuda::{Kernel, QUANTIZE, Unit, rows_units};

use crate::cuda::units;
use crate::error::ExecError;

/// Of the unit of float products, but none.
const SWIGLU: &str = "rows_swiglu";

/// Entries by what they are for.
pub(in crate::cuda) struct RowsKernels {
    /// By family, in the order of its units' entries.
    products: [Vec<Kernel>; 3],
    pub(super) swiglu: Kernel,
    pub(super) quantize: Kernel,
    pub(super) route: Kernel,
    pub(super) order: Kernel,
    pub(super) tiles: Kernel,
    pub(super) combine: Kernel,
    pub(super) kda_prepare128: Kernel,
    pub(super) kda_scan128: Kernel,
    pub(super) kda_gate128: Kernel,
    pub(super) kda_prepare: Kernel,
    pub(super) kda_scan: Kernel,
    pub(super) kda_gate: Kernel,
    pub(super) site4_streams: Kernel,
    pub(super) site4_gates: Kernel,
    pub(super) site4_norm: Kernel,
    pub(super) site: Kernel,
    pub(super) dsa_prepare: Kernel,
    pub(super) dsa_pool: Kernel,
    pub(super) index_scores: Kernel,
    pub(super) top_choose: Kernel,
    pub(super) attend_scores: Kernel,
    pub(super) attend_softmax: Kernel,
    pub(super) attend_mix: Kernel,
    pub(super) attend_mix_wide: Kernel,
}

impl RowsKernels {
    /// `entry` loads one, of a unit.
    pub(in crate::cuda) fn load(
        entry: impl Fn(&'static Unit, &str) -> Result<Kernel, ExecError>,
    ) -> Result<Self, ExecError> {
        let of = |family: Family| -> Result<Vec<Kernel>, ExecError> {
            let all =
                rows_units(family).iter().flat_map(|unit| unit.entries.iter().map(|name| (*unit, *name)));
            all.filter(|(_, name)| *name != SWIGLU).map(|(unit, name)| entry(unit, name)).collect()
        };
        Ok(Self {
            products: [of(Family::Wide)?, of(Family::Narrow)?, of(Family::Float)?],
            swiglu: entry(rows_units(Family::Float)[0], SWIGLU)?,
            quantize: entry(&QUANTIZE, "rows_quantize")?,
            route: entry(&units::EXPERTS, "rows_route")?,
            order: entry(&units::EXPERTS, "rows_order")?,
            tiles: entry(&units::EXPERTS, "rows_tiles")?,
            combine: entry(&units::EXPERTS, "rows_combine")?,
            kda_prepare128: entry(&units::KDA_ROWS, "kda_rows_prepare128")?,
            kda_scan128: entry(&units::KDA_ROWS, "kda_rows_scan128")?,
            kda_gate128: entry(&units::KDA_ROWS, "kda_rows_gate128")?,
            kda_prepare: entry(&units::KDA_ROWS, "kda_rows_prepare")?,
            kda_scan: entry(&units::KDA_ROWS, "kda_rows_scan")?,
            kda_gate: entry(&units::KDA_ROWS, "kda_rows_gate")?,
            site4_streams: entry(&units::SITE_ROWS, "site_rows4_streams")?,
            site4_gates: entry(&units::SITE_ROWS, "site_rows4_gates")?,
            site4_norm: entry(&units::SITE_ROWS, "site_rows4_norm")?,
            site: entry(&units::SITE_ROWS, "site_rows")?,
            dsa_prepare: entry(&units::DSA_ROWS_PREPARE, "dsa_rows_prepare")?,
            dsa_pool: entry(&units::DSA_ROWS_PREPARE, "dsa_rows_pool")?,
            index_scores: entry(&units::DSA_ROWS_INDEX, "index_rows_scores")?,
            top_choose: entry(&units::DSA_ROWS_INDEX, "top_rows_choose")?,
            attend_scores: entry(&units::DSA_ROWS_SCORES, "attend_rows_scores")?,
            attend_softmax: entry(&units::DSA_ROWS_MIX, "attend_rows_softmax")?,
            attend_mix: entry(&units::DSA_ROWS_MIX, "attend_rows_mix")?,
            attend_mix_wide: entry(&units::DSA_ROWS_MIX, "attend_rows_mix_wide")?,
        })
    }

    pub(super) fn product(&self, family: Family, variant: usize) -> &Kernel {
        let family = match family {
            Family::Wide => 0,
            Family::Narrow => 1,
            Family::Float => 2,
        };
        &self.products[family][variant]
    }
}
