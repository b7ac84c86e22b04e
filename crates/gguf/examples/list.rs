//! Prints the keys and tensors of a model: `cargo run -p gguf --example list -- PATH`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: list PATH")?;
    let model = gguf::Model::open(path.as_ref())?;
    let mut out = std::io::stdout().lock();
    use std::io::Write as _;
    for shard in model.shards() {
        writeln!(out, "{} {} bytes, {} tensors", shard.path.display(), shard.len, shard.n_tensors)?;
    }
    for (key, value) in model.metadata() {
        let mut text = format!("{value:?}");
        if let Some((at, _)) = text.char_indices().nth(100) {
            text.truncate(at);
        }
        writeln!(out, "{key} {text}")?;
    }
    for info in model.tensors() {
        writeln!(
            out,
            "{} {} {:?} {:?}",
            info.name,
            info.ty,
            &info.dims[..usize::from(info.n_dims)],
            info.extent
        )?;
    }
    Ok(())
}
