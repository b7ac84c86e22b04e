//! A fixed run of the blind fuzzer, and the seeds of the coverage-guided one.

#[path = "../examples/hammer/exercise.rs"]
mod exercise;
#[path = "../examples/hammer/limited.rs"]
mod limited;
#[path = "../examples/hammer/mutate.rs"]
mod mutate;
#[path = "../examples/hammer/seeds.rs"]
mod seeds;

#[global_allocator]
static ALLOCATOR: limited::Limited = limited::Limited;

/// One test: the allocator's record is of the whole process.
#[test]
fn changed_headers() {
    let seeds = seeds::seeds();
    for (name, bytes) in &seeds {
        assert!(gguf::Header::parse(bytes, 1 << 46).is_ok(), "{name}");
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
        let committed = std::fs::read(&path).expect("every seed is committed");
        assert!(committed == *bytes, "fuzz/seeds/{name} is stale: run the example hammer with --write-seeds");
        // Every beginning of it, which is what a broken download looks like.
        for end in 0..bytes.len() {
            exercise::exercise(&bytes[..end]);
        }
    }
    let mut random = mutate::Random::new(7);
    for _ in 0..50_000 {
        let mut bytes = seeds[random.below(seeds.len())].1.clone();
        mutate::mutate(&mut bytes, &seeds[random.below(seeds.len())].1, &mut random);
        exercise::exercise(&bytes);
    }
    // The allocator sees what the assertion in `exercise` relies on.
    limited::take_largest();
    drop(std::hint::black_box(vec![0_u8; 1 << 20]));
    assert_eq!(limited::take_largest(), 1 << 20);
}
