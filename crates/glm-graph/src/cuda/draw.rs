//! What a step begins and ends with: its token's embedding, and the draw of the next token.

use quant_kernels::cuda::{Args, DriverError, Grid};

use super::abi::{Begin, Begins, CHOICE_BYTES, DRAW, Drawing, GREEDY, MOST_TURNS, NO_DRAW, TURN_BYTES};
use super::kernels::Draw;
use super::scratch::SlotPlaces;
use super::token::Pass;
use crate::executor::Token;
use crate::sampler::{SamplerParams, lowest, uniform};

/// Threads of every block, each with a token (kernels/include/sampler.cuh).
const THREADS: u32 = 1024;
const ADJUST_SMEM: u32 = 32 * 8;
const COUNT_SMEM: u32 = 5 * 1024 * 4;
const DRAW_SMEM: u32 = 32 * 8 + 64 + 1024 * (4 + 8 + 8 + 8 + 4) + 256 * (8 + 8);
/// Bytes of what the host hears of a step: token and fault.
pub(super) const ANSWER_BYTES: usize = 8;

/// Device addresses of what draws read and write.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrawPlaces {
    /// Rows of logits, each with its own draw.
    pub(super) rows: u32,
    pub(super) logits: u64,
    pub(super) vocab: u32,
    pub(super) choice: u64,
    pub(super) adjusted: u64,
    pub(super) candidates: u64,
    pub(super) fault: u64,
    /// What the fault word says where a logit is not finite.
    pub(super) code: u32,
}

/// Blocks that list candidates, of all rows.
const MOST_LISTERS: u32 = 256;
const _: () = assert!(MOST_LISTERS as usize >= MOST_TURNS);

/// Hears of each launch: what it does, the kernel's grid and arguments.
pub(super) type Put<'a> =
    &'a dyn Fn(&'static str, &quant_kernels::cuda::Kernel, Grid, Args) -> Result<(), DriverError>;

impl DrawPlaces {
    /// Draws as `begin` was told to.
    pub(super) fn draw(&self, kernels: &Draw, put: Put<'_>) -> Result<(), DriverError> {
        let blocks = self.vocab.div_ceil(THREADS);
        let grid =
            |blocks: u32, smem| Grid::of([blocks, 1, self.rows], [THREADS, 1, 1]).with_smem(smem).early();
        let args = Args::new()
            .pointer(self.logits)
            .u32(self.vocab)
            .pointer(self.choice)
            .pointer(self.adjusted)
            .pointer(self.fault)
            .u32(self.code);
        put("sample adjust", &kernels.adjust, grid(blocks, ADJUST_SMEM), args)?;
        let args = Args::new().pointer(self.adjusted).u32(self.vocab).pointer(self.choice);
        put("sample count", &kernels.count, grid(blocks, COUNT_SMEM), args)?;
        // Each block adds up all bins before it lists: eight rows with a block for 1,024 tokens each took 190 us.
        self.answer(kernels, grid(blocks.min(MOST_LISTERS / self.rows), DRAW_SMEM), put)
    }

    /// The last launch of a draw; alone and with one block it tells the fault.
    fn answer(&self, kernels: &Draw, grid: Grid, put: Put<'_>) -> Result<(), DriverError> {
        let args = Args::new()
            .pointer(self.adjusted)
            .u32(self.vocab)
            .pointer(self.choice)
            .pointer(self.candidates)
            .pointer(self.fault);
        put("sample draw", &kernels.draw, grid, args)
    }
}

/// Puts the beginning of steps on the stream: one, or several up to [`MOST_TURNS`].
pub(super) fn begin(kernels: &Draw, rows: &[Begin], put: Put<'_>) -> Result<(), DriverError> {
    assert!((1..=MOST_TURNS).contains(&rows.len()), "{} steps begin together", rows.len());
    let mut all: Box<Begins> = Box::new(bytemuck::Zeroable::zeroed());
    all.row[..rows.len()].copy_from_slice(rows);
    let grid = Grid::of([1 + rows[0].hidden.div_ceil(THREADS), 1, rows.len() as u32], [THREADS, 1, 1]);
    put("begin", &kernels.begin, grid, Args::new().value(&*all))
}

/// How the token at `position + 1` is drawn. Addresses of biases and counts count only where the parameters need them.
pub(super) fn drawing(
    params: Option<&SamplerParams>,
    position: usize,
    vocab: usize,
    [sampled, answer, bias, counts]: [u64; 4],
) -> Drawing {
    let nothing = Drawing { sampled, answer, mode: NO_DRAW, ..bytemuck::Zeroable::zeroed() };
    let Some(params) = params else { return nothing };
    let is_biased = !(params.logit_bias.is_empty() && params.banned.is_empty());
    Drawing {
        bias: if is_biased { bias } else { 0 },
        counts: if params.is_penalised() { counts } else { 0 },
        draw: uniform(params.seed, position as u64 + 1),
        mode: if params.is_greedy() { GREEDY } else { DRAW },
        top_k: if params.top_k == 0 { vocab } else { params.top_k.min(vocab) } as u32,
        temperature: params.temperature,
        top_p: params.top_p,
        lowest: lowest(params.min_p),
        repetition: params.repetition_penalty,
        presence: params.presence_penalty,
        frequency: params.frequency_penalty,
        ..nothing
    }
}

/// What is added to each logit; NaN bans.
pub(super) fn bias_table(params: &SamplerParams, vocab: usize) -> Vec<f32> {
    let mut table = vec![0.0; vocab];
    for (token, bias) in params.biases() {
        if let Some(place) = table.get_mut(token as usize) {
            *place = bias;
        }
    }
    for token in params.banned.iter() {
        if let Some(place) = table.get_mut(*token as usize) {
            *place = f32::NAN;
        }
    }
    table
}

/// Which tokens of a sequence the device has counted, as positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) from: u32,
    pub(super) to: u32,
}

impl Counted {
    /// What shall be counted when the token at `position` is fed: what `params` wants, else what was, less what will be
    /// overwritten.
    pub(super) fn next(self, params: Option<&SamplerParams>, position: usize) -> Self {
        match params.filter(|params| params.is_penalised()) {
            Some(params) => Self { from: params.first_seen(position + 1) as u32, to: position as u32 + 1 },
            None => {
                let to = self.to.min(position as u32);
                Self { from: self.from.min(to), to }
            }
        }
    }
}

/// What the pass's end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// Nothing but telling the fault: there are no logits.
    States,
    /// The draw, and logits for the host.
    Rows,
    /// The draw.
    Token,
}

impl Pass<'_> {
    /// Of one row, whose logits are the pass's.
    pub(super) fn draw_places(&self) -> DrawPlaces {
        let s = self.scratch;
        DrawPlaces {
            rows: 1,
            logits: self.at(s.logits),
            vocab: self.weights.output.rows as u32,
            choice: self.at(s.choice),
            adjusted: self.at(s.adjusted),
            candidates: self.at(s.candidates),
            fault: self.at(s.fault),
            code: self.config.trunk as u32 + 1 + super::token::FIRST_LAYER,
        }
    }

    /// The launches after the pass.
    pub(super) fn end(&self, places: &DrawPlaces, end: End) -> Result<(), DriverError> {
        let put: Put<'_> = &|what, kernel, grid, args| self.put(what, kernel, grid, args);
        match end {
            End::States => {
                places.answer(&self.kernels.draw, Grid::new(1, THREADS).with_smem(DRAW_SMEM).early(), put)
            }
            End::Rows | End::Token => places.draw(&self.kernels.draw, put),
        }
    }

    /// What the step of a pass's row begins with, counts and the streams' place left open.
    pub(super) fn beginning(
        &self,
        row: usize,
        slot: &SlotPlaces,
        fed: Option<Token>,
        position: usize,
        drawing: Drawing,
    ) -> Begin {
        let (c, s) = (self.config, self.scratch);
        let embed = self.weights.embed;
        Begin {
            embeddings: embed.map_or(0, |embed| self.at(embed.at)),
            last: if fed.is_none() { self.at(slot.sampled) } else { 0 },
            turn: self.at(s.turns) + TURN_BYTES * row as u64,
            history: self.at(slot.history),
            counts: self.at(slot.counts),
            choice: self.at(s.choice) + CHOICE_BYTES * row as u64,
            drawing,
            slot: slot.states.0 - self.slot.states.0,
            token: fed.unwrap_or(0),
            position: position as u32,
            vocab: self.weights.output.rows as u32,
            format: embed.and_then(|embed| super::weights::row_format(embed.quant)).unwrap_or(0),
            row_bytes: embed.map_or(0, |embed| embed.row_bytes() as u32),
            hidden: c.hidden as u32,
            ..bytemuck::Zeroable::zeroed()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_parameters() {
        let all = SamplerParams { presence_penalty: 0.5, ..SamplerParams::default() };
        let three = SamplerParams { penalty_last_n: 3, ..all.clone() };
        let none = SamplerParams::default();
        let first = Counted::default().next(Some(&none), 10);
        assert_eq!(first, Counted::default());
        let counted = first.next(Some(&all), 11);
        assert_eq!(counted, Counted { from: 0, to: 12 });
        assert_eq!(counted.next(Some(&three), 12), Counted { from: 10, to: 13 });
        // Step 11 was undone and comes again.
        assert_eq!(counted.next(Some(&none), 11), Counted { from: 0, to: 11 });
        assert_eq!(Counted { from: 10, to: 13 }.next(None, 4), Counted { from: 4, to: 4 });
    }

    #[test]
    fn parameters_become_a_drawing() {
        let places = [1, 2, 3, 4];
        let greedy = drawing(Some(&SamplerParams::greedy()), 5, 100, places);
        assert_eq!((greedy.mode, greedy.bias, greedy.counts, greedy.top_k), (GREEDY, 0, 0, 100));
        let params = SamplerParams {
            top_k: 7,
            banned: [4].into(),
            logit_bias: vec![(2, 1.0), (2, 0.5)],
            frequency_penalty: 0.1,
            ..SamplerParams::default()
        };
        let drawn = drawing(Some(&params), 5, 100, places);
        assert_eq!((drawn.mode, drawn.bias, drawn.counts, drawn.top_k), (DRAW, 3, 4, 7));
        assert_eq!(drawn.draw, uniform(0, 6));
        assert_eq!(drawing(None, 5, 100, places).mode, NO_DRAW);
        let table = bias_table(&params, 6);
        assert_eq!((table[2], table[5]), (1.5, 0.0));
        assert!(table[4].is_nan());
    }
}
