//! Products of matrices with one vector: which launches they take, and which blocks have which rows.

use quant_kernels::Quant;
use quant_kernels::cuda::matvec_smem;

use super::abi::{MAX_TASKS, Task, Tasks};

/// Threads of a block where its shared memory allows them: sixteen warps, each with its own rows.
pub(super) const THREADS: u32 = 512;
/// Fewest: four warps, which old chips have the shared memory for.
const FEWEST: u32 = 128;

/// What a device gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Multiprocessors.
    pub(super) processors: u32,
    /// Shared memory that a block may have.
    pub(super) smem: u32,
}

/// A product that is wanted, with the format of its matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) quant: Quant,
    pub(super) task: Task,
}

/// One launch: its unit's formats and its matrices.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) formats: [Quant; 2],
    pub(super) tasks: Box<Tasks>,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) smem: u32,
}

impl Batch {
    /// Bytes of weights.
    pub(super) fn bytes(&self) -> u64 {
        let tasks = &self.tasks.task[..self.tasks.n as usize];
        tasks.iter().map(|task| u64::from(task.rows) * u64::from(task.row_bytes)).sum()
    }
}

/// Formats for which there is a unit that takes both in one launch: those of the published files.
pub(super) const PAIRS: [[Quant; 2]; 4] = [
    [Quant::Q6K, Quant::Q8_0],
    [Quant::Iq2Xxs, Quant::Q6K],
    [Quant::Iq2S, Quant::Q6K],
    [Quant::Iq3Xxs, Quant::Q6K],
];

/// The launches for `products`: one where a unit takes all their formats.
pub(super) fn batches(products: &[Product], room: Room) -> Vec<Batch> {
    let mut left: Vec<Product> = products.to_vec();
    let mut out = Vec::new();
    while let Some(first) = left.first() {
        let formats = formats_of(&left, first.quant);
        let (now, later): (Vec<_>, Vec<_>) = left.iter().partition(|p| formats.contains(&p.quant));
        for some in now.chunks(MAX_TASKS) {
            out.push(batch(formats, some, room));
        }
        left = later;
    }
    out
}

/// The pair that takes the most of `products` and `first`'s format, or this format alone.
fn formats_of(products: &[Product], first: Quant) -> [Quant; 2] {
    let has = |quant: Quant| products.iter().any(|p| p.quant == quant);
    let pair = PAIRS.into_iter().find(|pair| pair.contains(&first) && pair.iter().all(|quant| has(*quant)));
    pair.unwrap_or([first; 2])
}

fn batch(formats: [Quant; 2], products: &[Product], room: Room) -> Batch {
    let mut tasks: Box<Tasks> = Box::new(bytemuck::Zeroable::zeroed());
    let mut first = 0;
    for (i, (product, blocks)) in products.iter().zip(shares(products, room.processors)).enumerate() {
        let mut task = product.task;
        task.format = u32::from(product.quant != formats[0]);
        let rows = rows_of_block(&task, blocks);
        tasks.task[i] = task;
        tasks.first_block[i] = first;
        tasks.rows_of_block[i] = rows;
        first += task.rows.div_ceil(rows);
    }
    tasks.n = products.len() as u32;
    tasks.first_block[products.len()..].fill(first);
    let smem = |threads: u32| {
        let of = |(i, product): (usize, &Product)| {
            matvec_smem(product.quant, product.task.k, tasks.rows_of_block[i], threads, room.smem)
        };
        products.iter().enumerate().map(of).max().unwrap_or(0)
    };
    // A row's segments of 4096 weights have a warp each, at least.
    let longest = products.iter().map(|p| p.task.k).max().unwrap_or(0);
    let fewest = (32 * longest.div_ceil(4096)).next_power_of_two().max(FEWEST);
    // Most warps that fit; each needs room for its stages.
    let mut threads = THREADS;
    while threads > fewest && smem(threads) > room.smem {
        threads /= 2;
    }
    Batch { formats, blocks: first, threads, smem: smem(threads), tasks }
}

/// How long a byte of a format takes, in hundredths of one of Q6_K: with codebooks the look-ups take longer than the memory. Those
/// of the published files' experts are such that 132 multiprocessors deal alike: 14 blocks each for eight experts' gates and ups, or
/// downs, and 20 for the shared one (an expert with 13 would be 8 % longer).
fn cost(quant: Quant) -> u64 {
    match quant {
        Quant::Iq2Xxs | Quant::Iq2Xs | Quant::Iq3S => 210,
        Quant::Iq2S => 180,
        Quant::Iq3Xxs => 150,
        Quant::Iq1S | Quant::Iq1M => 270,
        // A float scale for every 32 weights.
        Quant::Q8_0 => 200,
        _ => 100,
    }
}

/// Blocks of each product: no more than there are multiprocessors, which run one of these blocks at a time, so that no block
/// waits for another to end; the next one goes where a block has most to do.
fn shares(products: &[Product], processors: u32) -> Vec<u32> {
    let work = |p: &Product| u64::from(p.task.rows) * u64::from(p.task.row_bytes) * cost(p.quant);
    let mut blocks = vec![1; products.len()];
    for _ in products.len() as u32..processors {
        let open = (0..products.len()).filter(|i| blocks[*i] < products[*i].task.rows);
        // Later ones of equals would do as well.
        match open.max_by_key(|i| (work(&products[*i]) / u64::from(blocks[*i]), std::cmp::Reverse(*i))) {
            Some(most) => blocks[most] += 1,
            None => break,
        }
    }
    blocks
}

/// Rows of a block, so that no more than `blocks` blocks take all: a divisor or a multiple of the rows that share a vector, so
/// that a block has one.
fn rows_of_block(task: &Task, blocks: u32) -> u32 {
    let rows = task.rows.div_ceil(blocks).max(1);
    if task.x_rows == 0 {
        return rows;
    }
    (rows..=task.x_rows).find(|n| task.x_rows.is_multiple_of(*n)).unwrap_or(task.x_rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { processors: 132, smem: 227 << 10 };

    fn product(quant: Quant, rows: u32, k: u32) -> Product {
        let row_bytes = quant.row_bytes(k as usize).unwrap() as u32;
        Product { quant, task: Task { rows, k, row_bytes, ..bytemuck::Zeroable::zeroed() } }
    }

    /// Every row of every matrix belongs to one block.
    #[test]
    fn blocks_cover_the_rows() {
        let list = [
            product(Quant::Q6K, 8192, 4096),
            product(Quant::Q8_0, 128, 4096),
            product(Quant::Q6K, 7, 256),
            product(Quant::F32, 64, 64),
        ];
        let batches = batches(&list, ROOM);
        assert_eq!(batches.len(), 2, "a pair and what is left");
        assert_eq!(batches.iter().map(|b| b.tasks.n).sum::<u32>(), 4);
        for batch in &batches {
            for i in 0..batch.tasks.n as usize {
                let blocks = batch.tasks.first_block[i + 1] - batch.tasks.first_block[i];
                let rows = batch.tasks.task[i].rows;
                let each = batch.tasks.rows_of_block[i];
                assert!(blocks * each >= rows && (blocks - 1) * each < rows);
            }
            assert_eq!(batch.blocks, batch.tasks.first_block[MAX_TASKS]);
            assert!(batch.blocks <= ROOM.processors, "{} blocks run in two turns", batch.blocks);
        }
    }

    /// A Turing chip gives a block 64 KB.
    #[test]
    fn fewer_warps_need_less_shared_memory() {
        let list = [product(Quant::Iq2Xxs, 4096, 4096)];
        let small = &batches(&list, Room { smem: 96 << 10, ..ROOM })[0];
        assert!(small.threads < THREADS && small.smem <= 96 << 10, "{} {}", small.threads, small.smem);
        assert_eq!(batches(&list, ROOM)[0].threads, THREADS);
    }

    #[test]
    fn a_block_has_one_vector() {
        let mut heads = product(Quant::Q6K, 64 * 512, 256);
        heads.task.x_rows = 512;
        let batch = &batches(&[heads], ROOM)[0];
        assert_eq!((batch.tasks.rows_of_block[0], batch.blocks), (256, 128));
    }
}
