//! What the writer refuses, and that what it writes reads back as it was.

use std::io::{self, Write};

use gguf::{Array, GgmlType, Header, Layout, Model, Value, WriteError};
use proptest::prelude::*;

fn two() -> Layout {
    let mut layout = Layout::new();
    layout.set("general.architecture", "x");
    layout.tensor("a", GgmlType::F32, &[3]).expect("valid");
    layout.tensor("b", GgmlType::Q8_0, &[32, 2]).expect("valid");
    layout
}

#[track_caller]
fn check<T: std::fmt::Debug>(result: Result<T, WriteError>, wanted: &str) {
    assert_eq!(result.expect_err(wanted).to_string(), wanted);
}

#[test]
fn tables_that_nobody_could_read() {
    let mut layout = Layout::new();
    check(layout.tensor("x", GgmlType::F32, &[4, 0]).map(drop), "tensor x has a zero dimension (4 x 0)");
    check(
        layout.tensor("x", GgmlType::Q6K, &[100]).map(drop),
        "tensor x has rows of 100 weights, which are not whole Q6_K blocks of 256",
    );
    check(layout.tensor("x", GgmlType::F32, &[]).map(drop), "tensor x has 0 dimensions; 1 to 4 are allowed");
    check(
        layout.tensor("x", GgmlType::F32, &[1; 6]).map(drop),
        "tensor x has 6 dimensions; 1 to 4 are allowed",
    );
    check(
        layout.tensor("x", GgmlType::F32, &[u64::MAX]).map(drop),
        "tensor x is impossibly large (18446744073709551615)",
    );
    let mut layout = two();
    layout.tensor("a", GgmlType::F32, &[1]).expect("valid alone");
    check(layout.write_to(Vec::new()).map(drop), "tensor a appears twice");
    let mut layout = two();
    layout.set("", 1_u32);
    check(layout.write_to(Vec::new()).map(drop), "key number 2 has no name");
    let mut layout = two();
    layout.set("general.alignment", 48_u32);
    check(layout.file_len(), "key general.alignment is 48; an alignment is a power of two from 8 to 1048576");
    let mut layout = Layout::new();
    layout.tensor(&"n".repeat(257), GgmlType::F32, &[1]).expect("valid but for its name");
    check(layout.file_len(), "tensor number 1 has 257 string bytes, more than the limit of 256");
    let mut layout = Layout::new();
    for name in ["a", "b", "c"] {
        layout.tensor(name, GgmlType::F32, &[1 << 60]).expect("possible alone");
    }
    check(layout.file_len(), "tensor b begins at offset 4611686018427387904, beyond any file");
}

#[test]
fn data_that_does_not_fit() {
    let mut writer = two().write_to(Vec::new()).expect("valid");
    check(writer.write(&[0; 4]), "no tensor was begun, so there is no place for 4 bytes");
    check(writer.tensor("c", &[]), "tensor c cannot be written: it is not in the table");
    check(writer.tensor("b", &[0; 68]), "tensor b cannot be written now: tensor a comes next");
    writer.begin("a").expect("next");
    writer.write(&[1; 5]).expect("room");
    check(writer.write(&[1; 8]), "tensor a has 12 bytes and was given 13");
    check(writer.begin("b"), "tensor a needs 12 bytes and got 5");
    writer.write(&[1; 7]).expect("room");
    writer.begin("b").expect("next");
    check(writer.begin("a"), "tensor b needs 68 bytes and got 0");
    writer.write(&[2; 68]).expect("room");
    check(writer.tensor("a", &[0; 12]), "tensor a cannot be written: it is written already");
    check(writer.tensor("c", &[0; 12]), "tensor c cannot be written: it is not in the table");
    let file = writer.finish().expect("complete");
    assert_eq!(file.len() as u64, two().file_len().expect("valid"));

    let mut writer = two().write_to(Vec::new()).expect("valid");
    writer.tensor("a", &[0; 12]).expect("next");
    check(writer.finish().map(drop), "tensor b and those after it were not written");
    let mut writer = two().write_to(Vec::new()).expect("valid");
    check(writer.tensor("a", &[0; 11]), "tensor a needs 12 bytes and got 11");
    check(writer.finish().map(drop), "tensor a needs 12 bytes and got 11");
}

/// Takes some bytes and then fails, as a full disk does.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.0);
        self.0 -= n;
        if n == 0 && !bytes.is_empty() { Err(io::Error::other("the disk is full")) } else { Ok(n) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk() {
    check(two().write_to(Full(20)).map(drop), "writing failed after byte 0: the disk is full");
    let header = two().file_len().expect("valid") as usize - 32 - 96;
    let mut writer = two().write_to(Full(header + 40)).expect("the header fits");
    writer.tensor("a", &[0; 12]).expect("fits");
    check(
        writer.tensor("b", &[0; 68]),
        &format!("writing failed after byte {}: the disk is full", header + 32),
    );
    check(writer.write(&[0]), "the file cannot be continued: an earlier write failed");
    check(writer.finish().map(drop), "the file cannot be continued: an earlier write failed");
}

/// A key set again keeps its place.
#[test]
fn set_replaces() {
    let mut layout = Layout::new();
    layout.set("a", 1_u32).set("b", 2_u32).set("a", "three");
    let file = layout.write_to(Vec::new()).and_then(|writer| writer.finish()).expect("valid");
    let header = Header::parse(&file, file.len() as u64).expect("readable");
    let pairs: Vec<_> = header.metadata.iter().collect();
    assert_eq!(pairs, [("a", &Value::from("three")), ("b", &Value::from(2_u32))]);
}

fn values() -> impl Strategy<Value = Value> {
    let text = || ".{0,12}".prop_map(Box::<str>::from);
    macro_rules! both {
        ($($variant:ident),*) => { prop_oneof![
            $(any_of!($variant).prop_map(Value::$variant),)*
            $(proptest::collection::vec(any_of!($variant), 0..9).prop_map(|it| Value::Array(Array::$variant(it))),)*
            text().prop_map(Value::String),
            proptest::collection::vec(text(), 0..9).prop_map(|it| Value::Array(Array::String(it))),
        ] };
    }
    // Floats are compared as values, so no NaN among them.
    macro_rules! any_of {
        (F32) => {
            proptest::num::f32::NORMAL | proptest::num::f32::ZERO | proptest::num::f32::INFINITE
        };
        (F64) => {
            proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::INFINITE
        };
        ($other:ident) => {
            any::<any_type!($other)>()
        };
    }
    macro_rules! any_type {
        (U8) => {
            u8
        };
        (I8) => {
            i8
        };
        (U16) => {
            u16
        };
        (I16) => {
            i16
        };
        (U32) => {
            u32
        };
        (I32) => {
            i32
        };
        (U64) => {
            u64
        };
        (I64) => {
            i64
        };
        (Bool) => {
            bool
        };
    }
    both!(U8, I8, U16, I16, U32, I32, U64, I64, Bool, F32, F64)
}

fn tensors() -> impl Strategy<Value = Vec<(GgmlType, Vec<u64>)>> {
    let one = (proptest::sample::select(GgmlType::ALL), 1..4_u64, proptest::collection::vec(1..4_u64, 0..4));
    let one = one.prop_map(|(ty, blocks, mut dims)| {
        dims.insert(0, blocks * u64::from(ty.block_len()));
        (ty, dims)
    });
    proptest::collection::vec(one, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    /// Any metadata, any table, any alignment, data in pieces of any size: all come back equal, and in their order.
    #[test]
    fn what_is_written_reads_back(
        pairs in proptest::collection::vec(values(), 0..20),
        table in tensors(),
        shift in 3..13_u32,
        piece in 1..200_usize,
    ) {
        let mut layout = Layout::new();
        let alignment = 1_u64 << shift;
        layout.set("general.alignment", alignment as u32);
        for (i, value) in pairs.iter().enumerate() {
            layout.set(&format!("key.{i}"), value.clone());
        }
        for (i, (ty, dims)) in table.iter().enumerate() {
            layout.tensor(&format!("t.{i}"), *ty, dims).expect("valid");
        }
        let mut writer = layout.write_to(Vec::new()).expect("valid");
        for i in 0..table.len() {
            let data = content(i, writer.tensors()[i].extent.len);
            writer.begin(&format!("t.{i}")).expect("next");
            for bytes in data.chunks(piece) {
                writer.write(bytes).expect("room");
            }
        }
        let file = writer.finish().expect("complete");
        prop_assert_eq!(file.len() as u64, layout.file_len().expect("valid"));
        prop_assert_eq!(file.len() as u64 % alignment, 0);

        let header = Header::parse(&file, file.len() as u64).expect("readable");
        prop_assert_eq!(header.alignment, alignment);
        prop_assert_eq!(header.metadata.len(), pairs.len() + 1);
        for (i, value) in pairs.iter().enumerate() {
            prop_assert_eq!(header.metadata.get(&format!("key.{i}")), Some(value));
        }
        prop_assert_eq!(header.tensors.len(), table.len());
        for (i, (info, (ty, dims))) in header.tensors.iter().zip(&table).enumerate() {
            prop_assert_eq!(&*info.name, format!("t.{i}"));
            prop_assert_eq!(info.ty, *ty);
            prop_assert_eq!(&info.dims[..usize::from(info.n_dims)], &dims[..]);
            prop_assert_eq!(info.extent.offset % alignment, 0);
            let start = info.extent.offset as usize;
            prop_assert_eq!(&file[start..start + info.extent.len as usize], content(i, info.extent.len));
        }
        // Any beginning of it is refused in one sentence, unless only padding is gone.
        let needed = header.tensors.iter().map(|info| info.extent.offset + info.extent.len).max();
        let cut = file.len() * piece / 200;
        if needed.is_some_and(|needed| (cut as u64) < needed) {
            prop_assert!(Header::parse(&file[..cut], cut as u64).is_err());
        }
    }
}

fn content(i: usize, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(i as u8)).collect()
}

/// A fixture written again, tensors in reverse order, has equal tensors and metadata.
#[test]
fn a_rewritten_model_is_the_same_model() {
    let Some(path) = golden::gguf("tiny-a.maya.gguf") else { return };
    let model = Model::open(&path).expect("opens");
    let mut layout = Layout::new();
    layout.copy_metadata(&model);
    for info in model.tensors().iter().rev() {
        layout.tensor(&info.name, info.ty, &info.dims[..usize::from(info.n_dims)]).expect("valid");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy.gguf");
    let mut writer = layout.write_to(std::fs::File::create(&copy).expect("creates")).expect("writes");
    for info in model.tensors().iter().rev() {
        writer.tensor(&info.name, model.bytes(info.extent).expect("inside")).expect("writes");
    }
    writer.finish().expect("complete");
    let copy = Model::open(&copy).expect("opens");
    assert!(model.metadata().eq(copy.metadata()));
    assert_eq!(model.tensors().len(), copy.tensors().len());
    for info in model.tensors() {
        let other = copy.tensor(&info.name).expect("there");
        assert_eq!((info.ty, info.dims, info.n_dims), (other.ty, other.dims, other.n_dims), "{}", info.name);
        assert!(
            model.bytes(info.extent).expect("inside") == copy.bytes(other.extent).expect("inside"),
            "{}",
            info.name
        );
    }
}

/// In the same order it is the same file, to the last byte: key order, value types, padding.
#[test]
fn a_copy_is_the_same_file() {
    for name in ["tiny-a.maya.gguf", "tiny-a.glm5next.gguf", "tiny-b.f32.gguf", "tiny-vision.mmproj-f32.gguf"]
    {
        let Some(path) = golden::gguf(name) else { continue };
        let model = Model::open(&path).expect("opens");
        let mut layout = Layout::new();
        layout.copy_metadata(&model);
        for info in model.tensors() {
            layout.tensor(&info.name, info.ty, &info.dims[..usize::from(info.n_dims)]).expect("valid");
        }
        let mut writer = layout.write_to(Vec::new()).expect("writes");
        for info in model.tensors() {
            writer.tensor(&info.name, model.bytes(info.extent).expect("inside")).expect("writes");
        }
        let copy = writer.finish().expect("complete");
        assert!(copy == std::fs::read(&path).expect("reads"), "{name}");
    }
}
