//! The device code of the model's own operations.

use quant_kernels::cuda::Unit;

macro_rules! device_code {
    ($path:literal) => {
        include_str!(concat!("../../../../kernels/", $path))
    };
}

const BASE: (&str, &str) = ("base.cuh", device_code!("include/base.cuh"));
const ACTIVATION: (&str, &str) = ("activation.cuh", device_code!("include/activation.cuh"));
const CANON: (&str, &str) = ("canon.cuh", device_code!("include/canon.cuh"));
const LAST: (&str, &str) = ("last.cuh", device_code!("include/last.cuh"));
const ORDER: (&str, &str) = ("order.cuh", device_code!("include/order.cuh"));
const SINKHORN: (&str, &str) = ("sinkhorn.cuh", device_code!("include/sinkhorn.cuh"));
const DOTS: (&str, &str) = ("dots.cuh", device_code!("include/dots.cuh"));
const SAMPLER: (&str, &str) = ("sampler.cuh", device_code!("include/sampler.cuh"));
const ROW: (&str, &str) = ("row.cuh", device_code!("include/row.cuh"));
const TURN: (&str, &str) = ("turn.cuh", device_code!("include/turn.cuh"));
const INDEXER: (&str, &str) = ("indexer.cuh", device_code!("include/indexer.cuh"));
const ATTEND: (&str, &str) = ("attend.cuh", device_code!("include/attend.cuh"));
const KDA_ROWS_STEPS: (&str, &str) = ("kda_rows.cuh", device_code!("include/kda_rows.cuh"));
const SITE_ROWS_PARTS: (&str, &str) = ("site_rows.cuh", device_code!("include/site_rows.cuh"));
const TILE_ROWS: (&str, &str) = ("tile_rows.cuh", device_code!("include/tile_rows.cuh"));
const INDEX_ROWS: (&str, &str) = ("index_rows.cuh", device_code!("include/index_rows.cuh"));
const ATTEND_ROWS: (&str, &str) = ("attend_rows.cuh", device_code!("include/attend_rows.cuh"));
const MIX_ROWS: (&str, &str) = ("mix_rows.cuh", device_code!("include/mix_rows.cuh"));

/// Hyper-connections.
pub(super) static SITE: Unit = Unit {
    name: "site",
    source: device_code!("glm/site.cu"),
    headers: &[ACTIVATION, BASE, CANON, LAST, ORDER, SINKHORN, TURN],
    entries: &["site", "site4"],
};

/// Delta attention.
pub(super) static KDA: Unit = Unit {
    name: "kda",
    source: device_code!("glm/kda.cu"),
    headers: &[ACTIVATION, BASE, CANON, ORDER, SINKHORN, TURN],
    entries: &["kda_step", "kda_step128", "kda_pair128"],
};

/// The router.
pub(super) static ROUTER: Unit = Unit {
    name: "router",
    source: device_code!("glm/router.cu"),
    headers: &[ACTIVATION, BASE, CANON, LAST, ORDER, SINKHORN, TURN],
    entries: &["router", "router_logits", "router_choose"],
};

/// What a row adds to the caches of latent attention.
pub(super) static DSA_PREPARE: Unit = Unit {
    name: "dsa_prepare",
    source: device_code!("glm/dsa_prepare.cu"),
    headers: &[ACTIVATION, BASE, CANON, DOTS, ATTEND, INDEXER, SINKHORN, TURN],
    entries: &["dsa_prepare"],
};

/// Which positions a row attends to.
pub(super) static DSA_INDEX: Unit = Unit {
    name: "dsa_index",
    source: device_code!("glm/dsa_index.cu"),
    headers: &[BASE, CANON, DOTS, ATTEND, INDEXER, TURN],
    entries: &["index_scores", "top_choose"],
};

/// Attention.
pub(super) static DSA_ATTEND: Unit = Unit {
    name: "dsa_attend",
    source: device_code!("glm/dsa_attend.cu"),
    headers: &[BASE, CANON, DOTS, ATTEND, TURN],
    entries: &["attend_scores", "attend_softmax", "attend_mix"],
};

/// Routes of a span, and the rows of each expert.
pub(super) static EXPERTS: Unit = Unit {
    name: "experts",
    source: device_code!("rows/experts.cu"),
    headers: &[BASE, CANON],
    entries: &["rows_route", "rows_order", "rows_tiles", "rows_combine"],
};

/// Delta attention of a span.
pub(super) static KDA_ROWS: Unit = Unit {
    name: "kda_rows",
    source: device_code!("rows/kda_rows.cu"),
    headers: &[BASE, CANON, DOTS, ORDER, KDA_ROWS_STEPS],
    entries: &[
        "kda_rows_prepare128",
        "kda_rows_scan128",
        "kda_rows_gate128",
        "kda_rows_prepare",
        "kda_rows_scan",
        "kda_rows_gate",
    ],
};

/// Hyper-connections of a span.
pub(super) static SITE_ROWS: Unit = Unit {
    name: "site_rows",
    source: device_code!("rows/site_rows.cu"),
    headers: &[ACTIVATION, BASE, CANON, DOTS, ORDER, SINKHORN, SITE_ROWS_PARTS],
    entries: &["site_rows4_streams", "site_rows4_gates", "site_rows4_norm", "site_rows"],
};

/// What a span's rows add to the caches of latent attention.
pub(super) static DSA_ROWS_PREPARE: Unit = Unit {
    name: "dsa_rows_prepare",
    source: device_code!("rows/dsa_rows_prepare.cu"),
    headers: &[BASE, CANON, DOTS, ATTEND, INDEXER, TURN],
    entries: &["dsa_rows_prepare", "dsa_rows_pool"],
};

/// Which positions a span's rows attend to.
pub(super) static DSA_ROWS_INDEX: Unit = Unit {
    name: "dsa_rows_index",
    source: device_code!("rows/dsa_rows_index.cu"),
    headers: &[BASE, CANON, DOTS, ATTEND, INDEXER, TURN, TILE_ROWS, INDEX_ROWS],
    entries: &["index_rows_scores", "top_rows_choose"],
};

/// Scores of a span's attention.
pub(super) static DSA_ROWS_SCORES: Unit = Unit {
    name: "dsa_rows_scores",
    source: device_code!("rows/dsa_rows_scores.cu"),
    headers: &[BASE, CANON, DOTS, ATTEND, TILE_ROWS, ATTEND_ROWS],
    entries: &["attend_rows_scores"],
};

/// Its weights and weighted sums.
pub(super) static DSA_ROWS_MIX: Unit = Unit {
    name: "dsa_rows_mix",
    source: device_code!("rows/dsa_rows_mix.cu"),
    headers: &[BASE, CANON, DOTS, ATTEND, TILE_ROWS, ATTEND_ROWS, MIX_ROWS],
    entries: &["attend_rows_softmax", "attend_rows_mix", "attend_rows_mix_wide"],
};

/// What a step begins with.
pub(super) static BEGIN: Unit = Unit {
    name: "begin",
    source: device_code!("glm/begin.cu"),
    headers: &[BASE, CANON, ROW, SAMPLER, TURN],
    entries: &["begin"],
};

/// From logits to a token.
pub(super) static SAMPLE: Unit = Unit {
    name: "sampler",
    source: device_code!("glm/sampler.cu"),
    headers: &[BASE, CANON, SAMPLER, TURN],
    entries: &["sample_adjust", "sample_count", "sample_draw"],
};

/// All of them.
pub static UNITS: [&Unit; 15] = [
    &SITE,
    &KDA,
    &ROUTER,
    &DSA_PREPARE,
    &DSA_INDEX,
    &DSA_ATTEND,
    &EXPERTS,
    &KDA_ROWS,
    &SITE_ROWS,
    &DSA_ROWS_PREPARE,
    &DSA_ROWS_INDEX,
    &DSA_ROWS_SCORES,
    &DSA_ROWS_MIX,
    &BEGIN,
    &SAMPLE,
];
