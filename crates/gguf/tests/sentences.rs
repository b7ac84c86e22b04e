//! Every way in which a header can be wrong, with the sentence that it gets.

mod raw;

use gguf::{GgmlType, Header, Layout, Model, Value};
use raw::Raw;

const F32: u32 = 0;
const Q8_0: u32 = 8;
const Q6_K: u32 = 14;

#[track_caller]
fn check(header: Raw, wanted: &str) {
    let len = header.0.len() as u64;
    check_len(header, len, wanted);
}

#[track_caller]
fn check_len(header: Raw, file_len: u64, wanted: &str) {
    let error = Header::parse(&header.0, file_len).expect_err("this header is wrong");
    assert_eq!(error.to_string(), wanted);
}

/// A header with one tensor and room for 1 KB of its data.
fn one_tensor(dims: &[u64], ty: u32, offset: u64) -> Raw {
    Raw::new(1, 0).tensor("x", dims, ty, offset).data(1024)
}

#[test]
fn not_this_format() {
    check(Raw::default(), "the file is empty");
    check(Raw(b"GG".to_vec()), r#"the file is not a GGUF file: it begins with "GG", not with "GGUF""#);
    check(
        Raw(b"PK\x03\x04....".to_vec()),
        r#"the file is not a GGUF file: it begins with "PK\x03\x04", not with "GGUF""#,
    );
    check(Raw(b"vers".to_vec()), r#"the file is not a GGUF file: it begins with "vers", not with "GGUF""#);
    let big = "the file is a big-endian GGUF file; only little-endian files can be read";
    check(Raw(b"GGUF".to_vec()).bytes(&3_u32.to_be_bytes()).u64(0).u64(0), big);
    check(Raw(b"FUGG".to_vec()).u32(3), big);
    for version in [0, 1, 4, 0x01000001] {
        let wanted = format!("the file has GGUF version {version}; versions 2 and 3 can be read");
        check(Raw(b"GGUF".to_vec()).u32(version).u64(0).u64(0), &wanted);
    }
}

#[test]
fn cut_off() {
    check(
        Raw(b"GGUF".to_vec()),
        "the file is cut off: 4 bytes are needed at byte 4, and the file ends at byte 4",
    );
    check(
        Raw(b"GGUF".to_vec()).u32(3).u32(1),
        "the file is cut off: 8 bytes are needed at byte 8, and the file ends at byte 12",
    );
    let twenty = [0; 20];
    check(
        Raw::new(0, 1).u64(30).bytes(&twenty),
        "key number 1 is cut off: 30 bytes are needed at byte 32, and the file ends at byte 52",
    );
    check(
        Raw::new(0, 1).key("general.name", 8, &9_u64.to_le_bytes()),
        "key general.name is cut off: 9 bytes are needed at byte 56, and the file ends at byte 56",
    );
    check(
        Raw::new(1, 0).str("blk.0.x").u32(2).u64(4).bytes(&[0; 7]),
        "tensor blk.0.x is cut off: 8 bytes are needed at byte 51, and the file ends at byte 58",
    );
}

/// Counts beyond a limit, and counts within it that the file has no room for. Neither allocates.
#[test]
fn counts() {
    check(Raw::new(0, 1 << 20), "the file has 1048576 keys, more than the limit of 65536");
    check(Raw::new(u64::MAX, 0), "the file has 18446744073709551615 tensors, more than the limit of 262144");
    check(
        Raw::new(0, 60000),
        "the file claims 60000 keys, which need at least 840000 bytes, and only 0 are left",
    );
    check(
        Raw::new(5, 0).bytes(&[0; 100]),
        "the file claims 5 tensors, which need at least 165 bytes, and only 108 are left",
    );
    check(
        Raw::new(0, 1).u64(1 << 40).bytes(&[0; 20]),
        "key number 1 has 1099511627776 string bytes, more than the limit of 65535",
    );
    let long = (1_u64 << 40).to_le_bytes();
    check(
        Raw::new(0, 1).key("k", 8, &long),
        "key k has 1099511627776 string bytes, more than the limit of 33554432",
    );
    check(
        Raw::new(0, 1).str("k").u32(9).u32(4).u64(1 << 40),
        "key k has 1099511627776 elements, more than the limit of 2097152",
    );
    check(
        Raw::new(0, 1).str("k").u32(9).u32(4).u64(1000).u64(0),
        "key k claims 1000 elements, which need at least 4000 bytes, and only 8 are left",
    );
    check(
        Raw::new(0, 1).str("k").u32(9).u32(8).u64(1000).u64(0),
        "key k claims 1000 elements, which need at least 8000 bytes, and only 8 are left",
    );
    check(
        Raw::new(1, 0).u64(257).bytes(&[b'x'; 300]),
        "tensor number 1 has 257 string bytes, more than the limit of 256",
    );
}

/// A header that goes on beyond 128 MiB.
#[test]
fn header_size() {
    let mut it = Raw::new(0, 5);
    for i in 0..5 {
        it = it.str(&format!("k{i}")).u32(8).u64(32 << 20);
        let len = it.0.len() + (32 << 20);
        it.0.resize(len, 0);
    }
    check(it, "the file has 134217840 header bytes, more than the limit of 134217728");
}

#[test]
fn keys() {
    check(Raw::new(0, 2).key("a.b", 0, &[1]).key("a.b", 0, &[2]), "key a.b appears twice");
    check(Raw::new(0, 1).key("", 0, &[1, 0]), "key number 1 has no name");
    check(
        Raw::new(0, 1).u64(2).bytes(b"a\xff").u32(0).bytes(&[0]),
        "key number 1 is not valid UTF-8 at byte 33",
    );
    check(
        Raw::new(0, 1).key("a", 8, &2_u64.to_le_bytes()).bytes(b"\xc3\x28"),
        "key a is not valid UTF-8 at byte 45",
    );
    check(Raw::new(0, 1).key("a", 13, &[0; 8]), "key a has value type 13, which does not exist");
    check(Raw::new(0, 1).str("a").u32(9).u32(77).u64(0), "key a has value type 77, which does not exist");
    check(
        Raw::new(0, 1).str("a").u32(9).u32(9).u64(1).u32(4).u64(0),
        "key a is an array of arrays, which is not supported",
    );
    check(Raw::new(0, 1).key("a", 7, &[2]), "key a is a bool with the value 2; only 0 and 1 are allowed");
    check(
        Raw::new(0, 1).str("a").u32(9).u32(7).u64(3).bytes(&[1, 0, 255]),
        "key a is a bool with the value 255; only 0 and 1 are allowed",
    );
    // What a name could do to a terminal, it does not do.
    check(
        Raw::new(0, 1).key("a\x1b[2J\n", 13, &[]).u64(0),
        r#"key "a\u{1b}[2J\n" has value type 13, which does not exist"#,
    );
    let long = "k".repeat(300);
    check(
        Raw::new(0, 1).key(&long, 13, &[]).u64(0),
        &format!("key {}... has value type 13, which does not exist", "k".repeat(80)),
    );
}

#[test]
fn alignment() {
    let range = "an alignment is a power of two from 8 to 1048576";
    for bad in [0_u32, 1, 4, 24, 33, 1 << 21, 1 << 31, u32::MAX] {
        check(
            Raw::new(0, 1).key("general.alignment", 4, &bad.to_le_bytes()),
            &format!("key general.alignment is {bad}; {range}"),
        );
    }
    check(
        Raw::new(0, 1).key("general.alignment", 5, &(-32_i32).to_le_bytes()),
        &format!("key general.alignment is -32; {range}"),
    );
    check(
        Raw::new(0, 1).key("general.alignment", 8, &2_u64.to_le_bytes()).bytes(b"32"),
        &format!("key general.alignment is of type string; {range}"),
    );
    check(
        Raw::new(0, 1).str("general.alignment").u32(9).u32(4).u64(0),
        &format!("key general.alignment is of type array of u32; {range}"),
    );
}

#[test]
fn tensors() {
    check(one_tensor(&[4, 0], F32, 0), "tensor x has a zero dimension (4 x 0)");
    check(one_tensor(&[0], Q6_K, 0), "tensor x has a zero dimension (0)");
    check(one_tensor(&[], F32, 0), "tensor x has 0 dimensions; 1 to 4 are allowed");
    check(one_tensor(&[1; 5], F32, 0), "tensor x has 5 dimensions; 1 to 4 are allowed");
    check(
        one_tensor(&[1 << 40, 1 << 40], F32, 0),
        "tensor x is impossibly large (1099511627776 x 1099511627776)",
    );
    check(one_tensor(&[1 << 62], F32, 0), "tensor x is impossibly large (4611686018427387904)");
    check(
        one_tensor(&[u64::MAX, 1, 2], F32, 0),
        "tensor x is impossibly large (18446744073709551615 x 1 x 2)",
    );
    for id in [4, 5, 31, 36, 38, 42, 255, u32::MAX] {
        check(one_tensor(&[32], id, 0), &format!("tensor x has type id {id}, which is not supported"));
    }
    check(
        one_tensor(&[100, 2], Q6_K, 0),
        "tensor x has rows of 100 weights, which are not whole Q6_K blocks of 256",
    );
    check(
        one_tensor(&[16, 2], Q8_0, 0),
        "tensor x has rows of 16 weights, which are not whole Q8_0 blocks of 32",
    );
    check(
        one_tensor(&[4], F32, 8),
        "tensor x begins at offset 8, which is not a multiple of the alignment 32",
    );
    check(
        one_tensor(&[4], F32, u64::MAX - 31),
        "tensor x begins at offset 18446744073709551584, beyond any file",
    );
    check(
        one_tensor(&[4], F32, i64::MAX as u64 - 31),
        "tensor x begins at offset 9223372036854775776, beyond any file",
    );
    let two =
        |second: &str, at| Raw::new(2, 0).tensor("x", &[16], F32, 0).tensor(second, &[8], F32, at).data(1024);
    check(two("x", 64), "tensor x appears twice");
    check(two("y", 0), "tensor y overlaps tensor x");
    check(two("y", 32), "tensor y overlaps tensor x");
    assert!(Header::parse(&two("y", 64).0, 4096).is_ok());
    check(
        Raw::new(1, 0).str("").u32(1),
        "the file claims 1 tensor, which need at least 33 bytes, and only 20 are left",
    );
    check(Raw::new(1, 0).tensor("", &[4], F32, 0).data(64), "tensor number 1 has no name");
    check(
        Raw::new(1, 0).u64(1).bytes(b"\xff").bytes(&[0; 64]),
        "tensor number 1 is not valid UTF-8 at byte 32",
    );
}

/// The end of the file inside tensor data: the first tensor cut, and all bytes that are missing.
#[test]
fn data_cut_off() {
    let header = Raw::new(3, 0)
        .tensor("c", &[8], F32, 64)
        .tensor("a", &[8], F32, 0)
        .tensor("b", &[8], F32, 32)
        .data(96);
    let whole = header.0.len() as u64; // 224
    assert!(Header::parse(&header.0, whole).is_ok());
    check_len(
        header.clone(),
        whole - 1,
        "tensor c ends at byte 224, but the file ends at byte 223: 1 byte is missing (1 tensor is cut)",
    );
    check_len(
        header.clone(),
        whole - 40,
        "tensor b ends at byte 192, but the file ends at byte 184: 40 bytes are missing (2 tensors are cut)",
    );
    check_len(
        header,
        whole - 96,
        "tensor a ends at byte 160, but the file ends at byte 128: 96 bytes are missing (3 tensors are cut)",
    );
}

/// A part without tensors may end before its padding (model-spec 9.4, trap 62).
#[test]
fn no_tensors_no_padding() {
    let header = Raw::new(0, 1).key("general.architecture", 8, &1_u64.to_le_bytes()).bytes(b"x");
    assert_ne!(header.0.len() % 32, 0);
    let parsed = Header::parse(&header.0, header.0.len() as u64).expect("loads");
    assert_eq!(parsed.metadata.str("general.architecture"), Ok(Some("x")));
}

/// Offsets are relative to where data begins, at the file's own alignment (trap 63); any width of the alignment key.
#[test]
fn data_start() {
    for (ty, value) in
        [(0_u32, vec![64_u8]), (4, 64_u32.to_le_bytes().to_vec()), (10, 64_u64.to_le_bytes().to_vec())]
    {
        let mut header = Raw::new(1, 1).key("general.alignment", ty, &value).tensor("x", &[4], F32, 64);
        let data_start = header.0.len().next_multiple_of(64);
        header.0.resize(data_start + 64 + 16, 0);
        let parsed = Header::parse(&header.0, header.0.len() as u64).expect("loads");
        assert_eq!((parsed.alignment, parsed.data_start), (64, data_start as u64));
        assert_eq!(parsed.tensors[0].extent.offset, data_start as u64 + 64);
    }
}

/// Version 2 has the same layout as 3.
#[test]
fn version_2() {
    let mut header = one_tensor(&[4], F32, 0);
    header.0[4] = 2;
    assert_eq!(Header::parse(&header.0, 4096).expect("loads").version, 2);
}

fn leak(layout: &Layout, fill: u8) -> &'static [u8] {
    let mut writer = layout.write_to(Vec::new()).expect("a valid layout");
    for info in writer.tensors().to_vec() {
        writer.tensor(&info.name, &vec![fill; info.extent.len as usize]).expect("in order");
    }
    writer.finish().expect("complete").leak()
}

#[test]
fn values() {
    let mut layout = Layout::new();
    layout
        .set("text", "hello")
        .set("minus", -3_i32)
        .set("big", u64::MAX)
        .set("half", 0.5_f32)
        .set("nan", f32::NAN);
    layout.set("huge", 1e300_f64).set("odd", 16_777_217_u32).set("none", Vec::<u32>::new());
    layout
        .set("differ", vec![5_u32, 5, 7])
        .set("words", Value::from(vec![Box::<str>::from("a"), "b".into()]));
    layout.set("numbers", vec![1_i64, -1]).set("yes", true);
    let model = Model::from_static("m.gguf", leak(&layout, 0)).expect("opens");
    let cases: &[(Result<(), gguf::Error>, &str)] = &[
        (model.u32("text").map(drop), "key text is of type string, where an integer is wanted"),
        (model.u32("half").map(drop), "key half is of type f32, where an integer is wanted"),
        (model.u32("minus").map(drop), "key minus is -3, where an integer from 0 to 4294967295 is wanted"),
        (
            model.u32("big").map(drop),
            "key big is 18446744073709551615, where an integer from 0 to 4294967295 is wanted",
        ),
        (
            model.u64("minus").map(drop),
            "key minus is -3, where an integer from 0 to 18446744073709551615 is wanted",
        ),
        (model.u32("none").map(drop), "key none is an empty array, where one value is wanted"),
        (
            model.u32("differ").map(drop),
            "key differ is an array of 3 values that differ (5, then 7 at index 2), where one value is wanted",
        ),
        (model.f32("text").map(drop), "key text is of type string, where a number is wanted"),
        (model.f32("nan").map(drop), "key nan is NaN, where a finite number is wanted"),
        (model.f32("huge").map(drop), "key huge is 1e300, where a finite number is wanted"),
        (model.f32("odd").map(drop), "key odd is 16777217, where a number that fits 24 bits is wanted"),
        (model.bool("minus").map(drop), "key minus is -3, where 0 or 1 is wanted"),
        (model.bool("half").map(drop), "key half is of type f32, where a bool is wanted"),
        (model.str("yes").map(drop), "key yes is of type bool, where a string is wanted"),
        (
            model.str("words").map(drop),
            "key words is an array of 2 values that differ (a, then b at index 1), where one value is wanted",
        ),
        (model.u32s("words").map(drop), "key words is of type array of string, where an integer is wanted"),
        (
            model.u32s("numbers").map(drop),
            "key numbers is -1 at index 1, where an integer from 0 to 4294967295 is wanted",
        ),
        (model.bools("differ").map(drop), "key differ is 5 at index 0, where 0 or 1 is wanted"),
        (model.strs("numbers").map(drop), "key numbers is of type array of i64, where a string is wanted"),
        (model.architecture().map(drop), "key general.architecture is missing"),
    ];
    for (result, wanted) in cases {
        assert_eq!(result.as_ref().expect_err(wanted).to_string(), format!("m.gguf: {wanted}"));
    }
    assert!(
        model.u32("absent").expect("no error").is_none() && model.strs("absent").expect("no error").is_none()
    );
}

/// The tolerance rules: scalar for array and array for scalar, any width, bool as integer and back, integer as float.
#[test]
fn tolerance() {
    let mut layout = Layout::new();
    layout
        .set("u8", 4_u8)
        .set("i16", 4_i16)
        .set("u64", 4_u64)
        .set("i64s", vec![4_i64; 46])
        .set("u8s", vec![0_u8, 1, 1]);
    layout
        .set("bools", vec![false, true, true])
        .set("yes", true)
        .set("ten", 10_u32)
        .set("tens", vec![10.0_f32; 45]);
    layout.set("tens64", vec![10.0_f64; 45]).set("word", "w").set("words", vec![Box::<str>::from("w"); 3]);
    let model = Model::from_static("m", leak(&layout, 0)).expect("opens");
    for key in ["u8", "i16", "u64", "i64s"] {
        assert_eq!(model.u32(key).expect(key), Some(4), "{key}");
        assert_eq!(model.u64(key).expect(key), Some(4), "{key}");
    }
    assert_eq!(model.u32s("i16").expect("one"), Some(vec![4]));
    assert_eq!(model.u32s("i64s").expect("all"), Some(vec![4; 46]));
    for key in ["u8s", "bools"] {
        assert_eq!(model.u32s(key).expect(key), Some(vec![0, 1, 1]));
        assert_eq!(model.bools(key).expect(key), Some(vec![false, true, true]));
    }
    assert_eq!(model.bools("yes").expect("one"), Some(vec![true]));
    assert_eq!((model.u32("yes").expect("1"), model.bool("yes").expect("true")), (Some(1), Some(true)));
    for key in ["ten", "tens", "tens64"] {
        assert_eq!(model.f32(key).expect(key), Some(10.0), "{key}");
    }
    assert_eq!(model.f32s("tens64").expect("all"), Some(vec![10.0; 45]));
    assert_eq!(model.str("words").expect("uniform"), Some("w"));
    assert_eq!(model.strs("word").expect("one").map(<[_]>::len), Some(1));
}

#[test]
fn slices_and_extents() {
    let mut layout = Layout::new();
    layout.tensor("flat", GgmlType::F32, &[8, 2]).expect("valid");
    layout.tensor("exps", GgmlType::Q8_0, &[64, 3, 5]).expect("valid");
    layout.tensor("four", GgmlType::F32, &[2, 2, 2, 2]).expect("valid");
    let model = Model::from_static("m", leak(&layout, 7)).expect("opens");
    let info = model.tensor("exps").expect("there");
    assert_eq!((info.row_bytes(), info.n_slices(), info.n_elements()), (68, 5, 960));
    let last = info.slice(4).expect("there");
    assert_eq!((last.len, last.offset + last.len), (204, info.extent.offset + info.extent.len));
    assert_eq!(model.bytes(last).expect("inside"), [7; 204]);
    assert_eq!(
        info.slice(5).expect_err("no").to_string(),
        "tensor exps (64 x 3 x 5) has no slice 5 along its third axis"
    );
    let flat = model.tensor("flat").expect("there");
    assert_eq!(flat.slice(0).expect("itself"), flat.extent);
    assert_eq!(
        flat.slice(1).expect_err("no").to_string(),
        "tensor flat (8 x 2) has no slice 1 along its third axis"
    );
    let four = model.tensor("four").expect("there");
    assert_eq!(
        four.slice(0).expect_err("no").to_string(),
        "tensor four (2 x 2 x 2 x 2) has a fourth axis, so it cannot be cut along its third"
    );
    for (shard, offset, len) in [(1, 0, 1), (0, u64::MAX, 2), (0, 0, 1 << 40), (0, 1 << 40, 0)] {
        let error = model.bytes(gguf::Extent { shard, offset, len }).expect_err("outside").to_string();
        assert_eq!(error, format!("m: there are no {len} bytes at byte {offset} of shard {}", shard + 1));
    }
}
