//! What can be wrong with a ring, in sentences.

/// What a ring says instead of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The words given are too few for the shape.
    #[error("{capacity} records of {record_words} words need more than the {words} words that are there")]
    Memory {
        /// Records that the ring is to hold.
        capacity: usize,
        /// Words of 64 bits of a record.
        record_words: usize,
        /// Words of 64 bits that were given.
        words: usize,
    },
    /// No ring can have this shape.
    #[error("a ring of {capacity} records of {record_words} words is not possible")]
    Shape {
        /// Records that the ring is to hold.
        capacity: usize,
        /// Words of 64 bits of a record.
        record_words: usize,
    },
    /// The consumer is a whole ring behind.
    #[error(
        "there is no room for record {sequence}: {taken} were taken, and the ring has room for {capacity}"
    )]
    Full {
        /// Number of the record that was to be written, from 1.
        sequence: u64,
        /// Records that the consumer has taken.
        taken: u64,
        /// Records that the ring holds.
        capacity: u64,
    },
    /// A wait for a record is over.
    #[error("record {sequence} did not come within {attempts} attempts")]
    NoRecord {
        /// Number of the record that was awaited.
        sequence: u64,
        /// How often it was looked for.
        attempts: u64,
    },
    /// A wait for a reply is over.
    #[error("the reply to {sequence} did not come within {attempts} attempts")]
    NoReply {
        /// Number of the record whose reply was awaited.
        sequence: u64,
        /// How often it was looked for.
        attempts: u64,
    },
    /// A record's place holds another one.
    #[error("the place of record {expected} has record {found}: the other end skipped or repeated one")]
    Skipped {
        /// The number that was next.
        expected: u64,
        /// The number that is there.
        found: u64,
    },
    /// A record ends with another number than it begins with.
    #[error("record {sequence} is torn: it ends as record {closing}")]
    Torn {
        /// The number in its first word.
        sequence: u64,
        /// The number in its last word.
        closing: u64,
    },
    /// The consumer says that it took records which were never written, or gave some back.
    #[error("the consumer claims to have taken {taken} records after {before}, and {written} were written")]
    Taken {
        /// Records that it says it took.
        taken: u64,
        /// What it said before.
        before: u64,
        /// Records that were written.
        written: u64,
    },
    /// Replies come in the order of their records.
    #[error("a reply to {sequence} was to be written after the one to {last}")]
    Order {
        /// The record that the reply belongs to.
        sequence: u64,
        /// The record of the last reply.
        last: u64,
    },
}
