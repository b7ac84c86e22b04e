//! What the fuzz drivers do with one input, and what must then hold.

use gguf::{Header, Layout};

use crate::limited::take_largest;

/// Parses `bytes` as a file that ends with them and as the beginning of a long one. Panics if the parser does, if it
/// asked for memory out of proportion, if an accepted header breaks a promise, or if it does not survive writing.
pub fn exercise(bytes: &[u8]) {
    // 64 TB: enough that tensors of most sizes fit, so that the checks behind that one are reached.
    for file_len in [bytes.len() as u64, 1 << 46] {
        take_largest();
        let parsed = Header::parse(bytes, file_len);
        let sentence = parsed.as_ref().err().map(ToString::to_string);
        let largest = take_largest();
        // The worst is a key of 14 bytes that becomes 48, at 3.5 to 1; 4096 covers an error's sentence.
        assert!(
            largest <= 4 * bytes.len() + 4096,
            "{largest} bytes at once for {} bytes of header",
            bytes.len()
        );
        match (parsed, sentence) {
            (Ok(header), _) => hold(&header, file_len),
            (Err(_), sentence) => {
                let sentence = sentence.expect("an error has a sentence");
                assert!(!sentence.is_empty() && !sentence.chars().any(char::is_control), "{sentence:?}");
            }
        }
    }
}

/// The promises of an accepted header.
fn hold(header: &Header, file_len: u64) {
    assert!(header.data_start.is_multiple_of(header.alignment));
    let mut extents: Vec<_> = header.tensors.iter().map(|info| info.extent).collect();
    extents.sort_by_key(|it| it.offset);
    assert!(extents.windows(2).all(|it| it[0].offset + it[0].len <= it[1].offset));
    for info in &header.tensors {
        let end = info.extent.offset + info.extent.len;
        assert!(info.extent.len > 0 && info.extent.offset >= header.data_start && end <= file_len);
        assert!(info.extent.offset.is_multiple_of(header.alignment));
        let last = info.slice(info.n_slices() - 1);
        assert!(last.map_or(info.dims[3] != 1, |last| last.offset + last.len == end));
        assert_eq!(info.ty.bytes_for(info.n_elements()), Some(info.extent.len));
    }
    for (key, value) in header.metadata.iter() {
        assert!(header.metadata.get(key).is_some_and(|it| std::ptr::eq(it, value)));
        let _ = (header.metadata.u32(key), header.metadata.f32(key), header.metadata.bool(key));
        let _ = (header.metadata.str(key), header.metadata.u32s(key), header.metadata.f32s(key));
        let _ = (header.metadata.bools(key), header.metadata.strs(key), header.metadata.u64(key));
    }
    let Some(first) = written(header) else { return };
    let again = Header::parse(&first, 1 << 62).expect("what was written can be read");
    assert!(written(&again).as_ref() == Some(&first), "a header changes when it is written twice");
    assert_eq!((again.metadata.len(), again.tensors.len()), (header.metadata.len(), header.tensors.len()));
}

/// The header as the writer would write it; `None` if its tensors, laid out without gaps, are beyond any file.
fn written(header: &Header) -> Option<Vec<u8>> {
    let mut layout = Layout::new();
    for (key, value) in header.metadata.iter() {
        layout.set(key, value.clone());
    }
    for info in &header.tensors {
        layout.tensor(&info.name, info.ty, &info.dims[..usize::from(info.n_dims)]).expect("it was accepted");
    }
    layout.header().ok()
}
