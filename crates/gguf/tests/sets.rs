//! Files, folders and split sets on disk: what opens, and the sentence of what does not.

use std::fs;
use std::path::{Path, PathBuf};

use gguf::{GgmlType, Header, Layout, Model, Value};

/// Three shards with two tensors each but the first, which has none (as some published sets have it).
struct Set {
    folder: tempfile::TempDir,
}

#[derive(Clone)]
struct Spelling {
    no: fn(u64) -> Value,
    count: fn(u64) -> Value,
    tensors: fn(u64) -> Value,
}

const USUAL: Spelling = Spelling {
    no: |it| (it as u16).into(),
    count: |it| (it as u16).into(),
    tensors: |it| (it as i32).into(),
};

const N: u64 = 3;

fn name(no: u64) -> String {
    format!("m-{no:05}-of-{N:05}.gguf")
}

/// Shard `no` from 1: tensors `<no>.a` and `<no>.b`, filled with its number.
fn shard(no: u64, spelling: &Spelling, change: impl FnOnce(&mut Layout)) -> Vec<u8> {
    let mut layout = Layout::new();
    if no == 1 {
        layout.set("general.architecture", "glm5-next").set("general.name", "m").set("only.in.first", 1_u32);
    }
    layout.set("split.no", (spelling.no)(no - 1)).set("split.count", (spelling.count)(N));
    layout.set("split.tensors.count", (spelling.tensors)(4));
    if no > 1 {
        layout.tensor(&format!("{no}.a"), GgmlType::F32, &[10]).expect("valid");
        layout.tensor(&format!("{no}.b"), GgmlType::Q8_0, &[64]).expect("valid");
    }
    change(&mut layout);
    file(&layout, no as u8)
}

fn file(layout: &Layout, fill: u8) -> Vec<u8> {
    let mut writer = layout.write_to(Vec::new()).expect("valid");
    for info in writer.tensors().to_vec() {
        writer.tensor(&info.name, &vec![fill; info.extent.len as usize]).expect("in order");
    }
    writer.finish().expect("complete")
}

impl Set {
    fn spelt(spelling: &Spelling) -> Self {
        let set = Self { folder: tempfile::tempdir().expect("a folder") };
        for no in 1..=N {
            set.put(&name(no), &shard(no, spelling, |_| {}));
        }
        set
    }

    fn usual() -> Self {
        Self::spelt(&USUAL)
    }

    fn empty() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("writes");
    }

    /// The error of opening `name` ("" is the folder), with the folder's own path left out.
    #[track_caller]
    fn check(&self, name: &str, wanted: &str) {
        let path = if name.is_empty() { self.folder.path().to_owned() } else { self.path(name) };
        let error = Model::open(&path).expect_err(wanted).to_string();
        assert_eq!(error.replace(&format!("{}/", self.folder.path().display()), ""), wanted);
    }

    /// The same error from every shard that is there and from the folder.
    #[track_caller]
    fn check_all(&self, wanted: &str) {
        for no in 1..=N {
            if self.path(&name(no)).exists() {
                self.check(&name(no), wanted);
            }
        }
        self.check("", wanted);
    }
}

#[track_caller]
fn check_whole(path: &Path) {
    let model = Model::open(path).expect("opens");
    let names: Vec<_> = model.tensors().iter().map(|info| &*info.name).collect();
    assert_eq!(names, ["2.a", "2.b", "3.a", "3.b"]);
    assert_eq!(model.architecture().expect("from shard 1"), "glm5-next");
    assert_eq!(model.u32("only.in.first").expect("from shard 1"), Some(1));
    assert_eq!(model.u32("split.no").expect("from shard 1"), Some(0));
    assert_eq!(model.shards().iter().map(|it| it.n_tensors).collect::<Vec<_>>(), [0, 2, 2]);
    for info in model.tensors() {
        let fill = info.extent.shard as u8 + 1;
        assert!(model.bytes(info.extent).expect("inside").iter().all(|&it| it == fill), "{}", info.name);
    }
    assert_eq!(model.tensor("3.b").expect("there").extent.len, 68);
    assert!(model.tensor("4.a").is_none());
}

/// F7: any shard and the folder give the whole set, in order, with the metadata of shard 1, however numbers are spelt.
#[test]
fn any_shard_in_any_spelling() {
    let signed = Spelling {
        no: |it| (it as i32).into(),
        count: |it| (it as i32).into(),
        tensors: |it| (it as u32).into(),
    };
    let wide =
        Spelling { no: |it| it.into(), count: |it| (it as i64).into(), tensors: |it| (it as i64).into() };
    let small = Spelling {
        no: |it| (it as u8).into(),
        count: |it| (it as i8).into(),
        tensors: |it| (it as i16).into(),
    };
    for spelling in [USUAL, signed, wide, small] {
        let set = Set::spelt(&spelling);
        for no in 1..=N {
            check_whole(&set.path(&name(no)));
        }
        check_whole(set.folder.path());
    }
}

/// A first part that ends before its padding loads (trap 62).
#[test]
fn first_part_without_padding() {
    let set = Set::usual();
    let mut bytes = shard(1, &USUAL, |_| {});
    let end = (0..bytes.len())
        .find(|&n| Header::parse(&bytes[..n], n as u64).is_ok())
        .expect("parses before its end");
    assert_ne!(end % 32, 0);
    bytes.truncate(end);
    set.put(&name(1), &bytes);
    check_whole(set.folder.path());
}

/// Names alone are enough where the keys are absent, with any number of digits.
#[test]
fn names_alone() {
    let set = Set::empty();
    for no in 1..=2 {
        let mut layout = Layout::new();
        layout.tensor(&format!("t{no}"), GgmlType::F32, &[1]).expect("valid");
        set.put(&format!("x-{no}-of-2.GGUF"), &file(&layout, 0));
    }
    for path in ["x-1-of-2.GGUF", "x-2-of-2.GGUF", ""] {
        assert_eq!(Model::open(&set.path(path)).expect("opens").tensors().len(), 2);
    }
    fs::remove_file(set.path("x-1-of-2.GGUF")).expect("removes");
    set.check("x-2-of-2.GGUF", "x-1-of-2.GGUF: shard 1 of 2 is missing: there is no such file");
}

/// A path without a folder part finds its siblings in the working folder; a name that is no set stands alone.
#[test]
fn whole_files() {
    let set = Set::empty();
    let mut layout = Layout::new();
    layout.set("split.count", 0_u16).set("split.no", 2_u16).set("split.tensors.count", 77_i32);
    layout.tensor("t", GgmlType::F32, &[1]).expect("valid");
    for name in
        ["merged.gguf", "one-00001-of-00001.gguf", "x-00004-of-00003.gguf", "-of-.gguf", "a-0-of-1.gguf"]
    {
        set.put(name, &file(&layout, 0));
        assert_eq!(Model::open(&set.path(name)).expect(name).tensors().len(), 1);
    }
}

#[test]
fn missing_shards() {
    let set = Set::usual();
    fs::remove_file(set.path(&name(2))).expect("removes");
    set.check_all("m-00002-of-00003.gguf: shard 2 of 3 is missing: there is no such file (2 tensors are in what is missing)");
    fs::remove_file(set.path(&name(1))).expect("removes");
    set.check_all("m-00001-of-00003.gguf: shard 1 of 3 is missing: there is no such file (2 tensors are in what is missing)");
}

/// F6: a shard cut short names the tensor and the bytes, from whichever shard one starts.
#[test]
fn short_shards() {
    let set = Set::usual();
    let whole = shard(3, &USUAL, |_| {});
    let end = whole.len() - 28; // tensor 3.b has 68 bytes, padded to 96
    set.put(&name(3), &whole[..end - 5]);
    let cut = format!(
        "m-00003-of-00003.gguf: tensor 3.b ends at byte {end}, but the file ends at byte {}",
        end - 5
    );
    set.check_all(&format!("{cut}: 5 bytes are missing (1 tensor is cut)"));
    set.put(&name(3), &whole[..end - 100]);
    let end_a = end - 68 - 24;
    let cut = format!(
        "m-00003-of-00003.gguf: tensor 3.a ends at byte {end_a}, but the file ends at byte {}",
        end - 100
    );
    set.check_all(&format!("{cut}: 100 bytes are missing (2 tensors are cut)"));
    set.put(&name(3), &whole[..100]);
    set.check_all("m-00003-of-00003.gguf: key split.tensors.count is cut off: 4 bytes are needed at byte 98, and the file ends at byte 100");
    set.put(&name(3), &[]);
    set.check_all("m-00003-of-00003.gguf: the file is empty");
    set.put(&name(3), b"<html>");
    set.check_all(
        r#"m-00003-of-00003.gguf: the file is not a GGUF file: it begins with "<htm", not with "GGUF""#,
    );
}

#[test]
fn doubled_shards() {
    let set = Set::usual();
    set.put(&name(3), &shard(2, &USUAL, |_| {}));
    set.check_all(
        "m-00003-of-00003.gguf: is a second copy of shard 2 (m-00002-of-00003.gguf): both hold tensor 2.a",
    );
    set.put(&name(2), &shard(3, &USUAL, |_| {}));
    set.check_all("m-00002-of-00003.gguf: is named shard 2, but its metadata says shard 3 (split.no 2): a foreign or misnamed file");
    let twin = |layout: &mut Layout| {
        layout.set("split.no", 2_u16).set("split.tensors.count", 4_u16);
    };
    let set = Set::usual();
    set.put(&name(3), &shard(2, &USUAL, twin));
    set.check_all("m-00003-of-00003.gguf: tensor 2.a is also in m-00002-of-00003.gguf");
}

#[test]
fn foreign_shards() {
    let set = Set::usual();
    let check = |change: &dyn Fn(&mut Layout), wanted: &str| {
        set.put(&name(2), &shard(2, &USUAL, change));
        set.check_all(&format!("m-00002-of-00003.gguf: {wanted}"));
    };
    let model = "belongs to another model: its";
    check(
        &|it| {
            it.set("split.count", 4_u16);
        },
        "says split.count 4, but its name says 3 shards",
    );
    check(
        &|it| {
            it.set("split.tensors.count", 5_i32);
        },
        &format!("{model} split.tensors.count is 5, and 4 in m-00001-of-00003.gguf"),
    );
    check(
        &|it| {
            it.set("general.architecture", "llama");
        },
        &format!("{model} general.architecture is llama, and glm5-next in m-00001-of-00003.gguf"),
    );
    check(
        &|it| {
            it.set("general.name", "n\n");
        },
        &format!("{model} general.name is \"n\\n\", and m in m-00001-of-00003.gguf"),
    );
    check(
        &|it| {
            it.set("split.no", -1_i32);
        },
        "key split.no is -1, where an integer from 0 to 18446744073709551615 is wanted",
    );
    check(
        &|it| {
            it.set("split.no", 7_u64);
        },
        "is named shard 2, but its metadata says shard 8 (split.no 7): a foreign or misnamed file",
    );
    check(
        &|it| {
            it.set("split.count", 0_u16);
        },
        &format!("{model} split.count is 0, and 3 in m-00001-of-00003.gguf"),
    );
    // The same keys, but not all of the tensors: only the total shows it.
    let mut other = Layout::new();
    other.set("split.no", 1_u16).set("split.count", 3_u16).set("split.tensors.count", 4_i32);
    other.tensor("2.a", GgmlType::F32, &[10]).expect("valid");
    set.put(&name(2), &file(&other, 0));
    set.check_all("m-00001-of-00003.gguf: split.tensors.count is 4, but the 3 shards hold 3 tensors: one of them is foreign");
}

#[test]
fn names_against_metadata() {
    let set = Set::usual();
    fs::rename(set.path(&name(2)), set.path("renamed.gguf")).expect("renames");
    set.check("renamed.gguf", "renamed.gguf: is shard 2 of 3 by its metadata, but its name does not end in -00002-of-00003.gguf, so the other shards cannot be found");
    let set = Set::empty();
    set.put("m-00002-of-00009.gguf", &shard(2, &USUAL, |_| {}));
    set.check("", "m-00002-of-00009.gguf: says split.count 3, but its name says 9 shards");
    let mut layout = Layout::new();
    layout.tensor("t", GgmlType::F32, &[1]).expect("valid");
    let set = Set::empty();
    set.put("m-00001-of-99999.gguf", &file(&layout, 0));
    set.check("", "m-00001-of-99999.gguf: has 99999 shards, and the limit is 4096");
    let shard = file(Layout::new().set("split.count", 3_u16), 0).leak();
    let error = Model::from_static("demo", shard).expect_err("not whole").to_string();
    assert_eq!(error, "demo: is one shard of 3, and an embedded model must be whole");
}

#[test]
fn not_a_model() {
    let set = Set::empty();
    set.check("gone.gguf", "gone.gguf: there is no such file or folder");
    set.put("empty.gguf", b"");
    set.check("empty.gguf", "empty.gguf: the file is empty");
    set.put("page.gguf", b"<!doctype html>");
    set.check(
        "page.gguf",
        r#"page.gguf: the file is not a GGUF file: it begins with "<!do", not with "GGUF""#,
    );
    set.check("page.gguf/x", "page.gguf/x: there is no such file or folder");
    if cfg!(unix) {
        let error = Model::open(Path::new("/dev/null")).expect_err("a device").to_string();
        assert_eq!(error, "/dev/null: is neither a file nor a folder");
    }
    // A folder where a shard should be.
    let set = Set::usual();
    fs::remove_file(set.path(&name(3))).expect("removes");
    fs::create_dir(set.path(&name(3))).expect("creates");
    set.check(&name(1), "m-00003-of-00003.gguf: is neither a file nor a folder");
}

#[test]
fn folders() {
    let set = Set::empty();
    let folder = set.folder.path().display().to_string();
    set.put("readme.md", b"");
    set.put("._m.gguf", b"");
    fs::create_dir(set.path("sub.gguf")).expect("creates");
    set.check("", &format!("{folder}: there is no .gguf file in this folder"));

    let mut layout = Layout::new();
    layout.set("general.architecture", "clip");
    set.put("mmproj.gguf", &file(&layout, 0));
    assert_eq!(Model::open(set.folder.path()).expect("the only one").architecture().expect("there"), "clip");

    for no in 1..=N {
        set.put(&name(no), &shard(no, &USUAL, |_| {}));
    }
    check_whole(set.folder.path());

    set.put("other.gguf", b"broken");
    let both = format!(
        "{folder}: there are 2 models in this folder (m-00001-of-00003.gguf (a set of 3), other.gguf): name one of them"
    );
    set.check("", &both);
    for i in 0..12 {
        set.put(&format!("z{i:02}.gguf"), b"");
    }
    let error = Model::open(set.folder.path()).expect_err("14 models").to_string();
    assert!(error.contains("there are 14 models") && error.contains("z07.gguf and 4 more)"), "{error}");
}

/// The split fixture: every shard gives the same 291 tensors; the last one cut by 4096 bytes names what is missing.
#[test]
fn the_split_fixture() {
    let names = [1, 2, 3].map(|no| format!("tiny-b.maya-0000{no}-of-00003.gguf"));
    let paths: Vec<_> = names.iter().filter_map(|name| golden::gguf(name)).collect();
    let [first, _, last] = &paths[..] else { return };
    for path in &paths {
        let model = Model::open(path).expect("opens");
        assert_eq!((model.tensors().len(), model.shards().len()), (291, 3));
        assert_eq!(model.u32("glm5-next.block_count").expect("there"), Some(10));
        // Trap 63: the first bytes of a norm, wherever its shard is, are values near 1.
        for i in 0..10 {
            let norm = model.tensor(&format!("blk.{i}.attn_norm.weight")).expect("there");
            let bytes = model.bytes(norm.extent).expect("inside");
            let value = f32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
            assert!((0.5..2.0).contains(&value), "{i}: {value}");
        }
    }
    let set = Set::empty();
    for (name, path) in names.iter().zip(&paths) {
        fs::copy(path, set.path(name)).expect("copies");
    }
    let len = fs::metadata(last).expect("there").len() - 4096;
    let file = fs::OpenOptions::new().write(true).open(set.path(&names[2])).expect("opens");
    file.set_len(len).expect("cuts");
    for name in names.iter().map(String::as_str).chain([""]) {
        let error = Model::open(&set.path(name)).expect_err("cut").to_string();
        assert!(error.contains("tiny-b.maya-00003-of-00003.gguf: tensor blk.9."), "{error}");
        assert!(error.contains(&format!("but the file ends at byte {len}: ")), "{error}");
        assert!(error.contains(" bytes are missing ("), "{error}");
    }
    assert!(first.exists());
}
