//! The C header against the Rust side: sizes, offsets and constants, as a C compiler sees them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::mem::{offset_of, size_of};
use std::process::Command;

use tier_cache::{
    ABI_VERSION, BatchHeader, EditEntry, EditOffer, Entry, EntryKind, MAX_OFFERS, MAX_ROUTE, RECORD_WORDS,
    RING_HEAD_WORDS, RecordClaim, RecordError, RecordLane, ReplyRecord, RouteRecord, TABLE_MAGIC,
    TableHeader, TableOffer,
};

/// C expressions, and what each must be.
type Expected = BTreeMap<String, u64>;

macro_rules! layout {
    ($to:ident, $rust:ident = $c:ident { $($field:ident),* }) => {
        $to.insert(format!("sizeof({})", stringify!($c)), size_of::<$rust>() as u64);
        $($to.insert(
            format!("TIER_OFFSET({}, {})", stringify!($c), stringify!($field)),
            offset_of!($rust, $field) as u64,
        );)*
        // A field that the list above has not would not be compared.
        #[allow(dead_code)]
        fn complete($rust { $($field: _),* }: $rust) {}
    };
}

fn expected() -> Expected {
    let mut all = Expected::new();
    {
        layout!(
            all,
            TableHeader = tier_table_header { magic, version, layers, experts, offers, applied, reserved }
        );
    }
    {
        layout!(all, BatchHeader = tier_batch_header { sequence, n_entries, n_offers, reserved });
    }
    {
        layout!(all, EditEntry = tier_edit_entry { key, reserved, from, to });
    }
    {
        layout!(all, TableOffer = tier_table_offer { value, fallback, owner, reserved });
    }
    {
        layout!(all, EditOffer = tier_edit_offer { layer, place, owner, value, fallback });
    }
    {
        layout!(all, RecordClaim = tier_claim { place, reserved, slot });
    }
    {
        layout!(
            all,
            RouteRecord = tier_route_record {
                sequence,
                applied,
                layer,
                n,
                row,
                experts,
                lanes,
                claims,
                reserved,
                closing
            }
        );
    }
    {
        layout!(all, ReplyRecord = tier_reply_record { sequence, status, n, sources, reserved, closing });
    }
    let constants = [
        ("TIER_TABLE_MAGIC", TABLE_MAGIC),
        ("TIER_ABI_VERSION", ABI_VERSION.into()),
        ("TIER_MAX_OFFERS", MAX_OFFERS.into()),
        ("TIER_MAX_ROUTE", MAX_ROUTE as u64),
        ("TIER_RECORD_WORDS", RECORD_WORDS as u64),
        ("TIER_RING_HEAD_WORDS", RING_HEAD_WORDS as u64),
        ("TIER_ENTRY_NOTHING", Entry::NOTHING.raw()),
        ("TIER_ENTRY_DEVICE", Entry::device_slot(0).raw()),
        ("TIER_ENTRY_HOST", Entry::host_slot(0).raw()),
        ("TIER_ENTRY_KIND(0x123456789ab2ull)", Entry::host_slot(0).raw()),
        ("TIER_ENTRY_ADDRESS(0x123456789ab2ull)", 0x1234_5678_9ab0),
        ("TIER_ENTRY_SLOT(0x123451ull)", 0x1_2345),
        ("TIER_LANE_HIT", RecordLane::Hit as u64),
        ("TIER_LANE_PULL_SPARE", RecordLane::PullSpare as u64),
        ("TIER_LANE_PULL_SCRATCH", RecordLane::PullScratch as u64),
        ("TIER_LANE_DISK_SPARE", RecordLane::DiskSpare as u64),
        ("TIER_LANE_DISK_SCRATCH", RecordLane::DiskScratch as u64),
        ("TIER_LANE_CPU", RecordLane::Cpu as u64),
        ("TIER_LANE_SKIPPED", RecordLane::Skipped as u64),
    ];
    all.extend(constants.map(|(name, value)| (name.to_owned(), value)));
    let entry = Entry::from_raw(0x1234_5678_9ab2).expect("an entry");
    assert_eq!((entry.kind(), entry.address()), (EntryKind::Host, 0x1234_5678_9ab0));
    assert_eq!(Entry::from_raw(0x12_3451).expect("an entry").slot(), Some(0x1_2345));
    all
}

#[test]
fn the_c_header_says_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let expected = expected();
    let (source, program) = (folder.path().join("abi.c"), folder.path().join("abi"));
    let mut text = "#include \"tier_abi.h\"\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for name in expected.keys() {
        text += &format!("    printf(\"%s=%llu\\n\", \"{name}\", (unsigned long long)({name}));\n");
    }
    text += "    return 0;\n}\n";
    std::fs::write(&source, text).expect("writes");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include"))
        .args(["-o".as_ref(), program.as_os_str(), source.as_os_str()])
        .output();
    let compiled = match compiled {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("the_c_header_says_the_same: SKIPPED, there is no C compiler `{compiler}`");
            return;
        }
        compiled => compiled.expect("the compiler starts"),
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().expect("runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let found: Expected = text
        .lines()
        .map(|line| line.rsplit_once('=').expect("name=value"))
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect();
    assert_eq!(found, expected);
}

/// Words and struct agree: each field is found at its offset in the words' bytes.
#[test]
fn a_route_is_its_words() {
    let route = RouteRecord {
        sequence: 0x0102_0304_0506_0708,
        applied: 0x1112_1314_1516_1718,
        layer: 0x2122,
        n: 7,
        row: 0x3132_3334,
        experts: std::array::from_fn(|i| 0x4100 + i as u16),
        lanes: [
            RecordLane::Hit,
            RecordLane::PullSpare,
            RecordLane::DiskScratch,
            RecordLane::Cpu,
            RecordLane::Skipped,
            RecordLane::Hit,
            RecordLane::Cpu,
            RecordLane::PullSpare,
        ],
        claims: std::array::from_fn(|i| RecordClaim {
            place: 0x5100 + i as u16,
            reserved: 0x61,
            slot: 0x7100_0000 + i as u32,
        }),
        reserved: 0x81,
        closing: 0x9192_9394_9596_9798,
    };
    let words = route.to_words();
    assert_eq!(RouteRecord::from_words(&words), Ok(route));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = |offset: usize, len: usize| {
        bytes[offset..offset + len].iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    assert_eq!(at(offset_of!(RouteRecord, sequence), 8), route.sequence);
    assert_eq!(at(offset_of!(RouteRecord, applied), 8), route.applied);
    assert_eq!(at(offset_of!(RouteRecord, layer), 2), route.layer.into());
    assert_eq!(at(offset_of!(RouteRecord, n), 2), route.n.into());
    assert_eq!(at(offset_of!(RouteRecord, row), 4), route.row.into());
    for i in 0..MAX_ROUTE {
        assert_eq!(at(offset_of!(RouteRecord, experts) + 2 * i, 2), route.experts[i].into());
        assert_eq!(at(offset_of!(RouteRecord, lanes) + i, 1), route.lanes[i] as u64);
        let claim = offset_of!(RouteRecord, claims) + i * size_of::<RecordClaim>();
        assert_eq!(at(claim + offset_of!(RecordClaim, place), 2), route.claims[i].place.into());
        assert_eq!(at(claim + offset_of!(RecordClaim, reserved), 2), route.claims[i].reserved.into());
        assert_eq!(at(claim + offset_of!(RecordClaim, slot), 4), route.claims[i].slot.into());
    }
    assert_eq!(at(offset_of!(RouteRecord, reserved), 8), route.reserved);
    assert_eq!(at(offset_of!(RouteRecord, closing), 8), route.closing);

    let reply = ReplyRecord {
        sequence: 5,
        status: 0xa1,
        n: 8,
        sources: std::array::from_fn(|i| 0xb100 + i as u64),
        reserved: [1, 2, 3, 4, 5],
        closing: 6,
    };
    let words = reply.to_words();
    assert_eq!(ReplyRecord::from_words(&words), Ok(reply));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!((bytes[offset_of!(ReplyRecord, status)], bytes[offset_of!(ReplyRecord, n)]), (0xa1, 8));
    assert_eq!(bytes[offset_of!(ReplyRecord, sources) + 8..][..2], [0x01, 0xb1]);
    assert_eq!((bytes[offset_of!(ReplyRecord, reserved)], bytes[offset_of!(ReplyRecord, closing)]), (1, 6));
}

#[test]
fn records_that_make_no_sense_are_refused() {
    let mut words = [0; RECORD_WORDS];
    words[0] = 9;
    words[2] = 9 << 16;
    let error = RouteRecord::from_words(&words).expect_err("nine experts");
    assert_eq!(error.to_string(), "record 9 has 9 experts; up to 8 are allowed");
    words[2] = 8 << 16;
    words[5] = 7 << 24;
    let error = RouteRecord::from_words(&words).expect_err("lane 7");
    assert_eq!(error, RecordError::Lane { sequence: 9, rank: 3, lane: 7 });
    words[1] = 9 << 32;
    assert!(ReplyRecord::from_words(&words).is_err());
    // Any words are answered.
    for fill in [0, 1, u64::MAX, 0x0404_0404_0404_0404] {
        let _ =
            (RouteRecord::from_words(&[fill; RECORD_WORDS]), ReplyRecord::from_words(&[fill; RECORD_WORDS]));
    }
}
