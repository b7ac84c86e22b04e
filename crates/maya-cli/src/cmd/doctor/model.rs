//! The model: its files, whether the engine accepts it, and the copy of the demo model in the cache folder.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::drive::Read;
use super::files::Files;
use super::outlook::Outlook;
use super::{Finding, drive, several};
use crate::demo;
use crate::group::Group;
use crate::machine::{Memory, System};
use crate::output::bytes;
use crate::source::Source;
use crate::survey::Survey;

/// Bytes of an expert of the published model, for files that do not say.
const BLOB: u32 = 7_110_656;

/// The model, its drive, and what maya would do with both: three groups.
pub(super) fn findings(
    system: &System,
    memory: &Memory,
    path: Option<&Path>,
    thorough: bool,
) -> Vec<Vec<Finding>> {
    match Source::open(path) {
        Ok(source) => opened(system, memory, source, thorough),
        Err(error) => refused(system, path, &format!("{error:#}"), thorough),
    }
}

fn opened(system: &System, memory: &Memory, source: Source, thorough: bool) -> Vec<Vec<Finding>> {
    let path = source.path.clone();
    let paths: Vec<PathBuf> = match path {
        Some(_) => source.model.shards().iter().map(|s| s.path.clone()).collect(),
        None => Vec::new(),
    };
    let files = path.as_ref().map(|_| Files::of(&paths));
    let survey = Survey::of(&source.model);
    let (name, size, n_shards) = (source.name.clone(), source.len(), source.model.shards().len());
    let read =
        Read { paths: &paths, bytes: size, blob: blob(&survey), is_embedded: path.is_none(), thorough };
    let (drive, rate) = drive::findings(system, &read);
    let loaded = glm_graph::Model::load(source.model).map_err(|e| e.to_string());
    let refused = loaded.as_ref().err();
    let verdict = match refused {
        None => "the engine accepts it".to_owned(),
        Some(why) => format!("the engine refuses it: {why}"),
    };
    let facts = json!({
        "name": name,
        "bytes": size,
        "shards": n_shards,
        "runs": refused.is_none(),
        "error": refused,
    });
    let found = format!("{name}, {} in {}: {verdict}", bytes(size), several(n_shards, "file"));
    let mut model: Vec<Finding> = files.iter().map(Files::finding).collect();
    model.push(Finding::new("model", found, facts));
    model.push(cache());
    let outlook = Outlook::of(&survey, loaded.as_ref().ok(), memory, rate, path.as_deref());
    vec![model, drive, outlook.findings()]
}

fn refused(system: &System, path: Option<&Path>, error: &str, thorough: bool) -> Vec<Vec<Finding>> {
    let files = path.map(Files::named);
    let found = format!("cannot be opened: {error}");
    let facts = json!({"name": null, "bytes": null, "shards": null, "runs": false, "error": error});
    let mut model: Vec<Finding> = files.iter().map(Files::finding).collect();
    model.push(Finding::new("model", found, facts));
    model.push(cache());
    // What is there of it still shows what its drive can do.
    let readable = |s: &&super::files::Shard| s.len.is_some_and(|len| len > 0);
    let shards = files.iter().flat_map(|f| f.shards.iter().filter(readable));
    let (paths, sizes): (Vec<PathBuf>, Vec<u64>) =
        shards.map(|s| (s.path.clone(), s.len.unwrap_or(0))).unzip();
    let bytes = sizes.iter().sum();
    let read = Read { paths: &paths, bytes, blob: BLOB, is_embedded: false, thorough };
    let (drive, _) = drive::findings(system, &read);
    let suggestion = Finding::new(
        "suggestion",
        "none: this model cannot be opened; maya chat without --model runs the demo model",
        json!({"command": null}),
    );
    vec![model, drive, vec![suggestion]]
}

/// Bytes of a routed expert on average, within what is sensible to read at once.
fn blob(survey: &Survey) -> u32 {
    let experts = survey.group(Group::Experts).bytes;
    let mean = experts.checked_div(survey.n_experts()).filter(|&b| b > 0);
    mean.map_or(BLOB, |mean| mean.clamp(64 << 10, 64 << 20) as u32)
}

fn cache() -> Finding {
    let path = match demo::cached_path() {
        Ok(path) => path,
        Err(e) => return Finding::new("cache", e.to_string(), json!({"folder": null, "demo": null})),
    };
    let folder = path.parent().unwrap_or(&path).to_owned();
    let (state, found) = if demo::is_intact(&path) {
        ("written", "holds the demo model, and it is whole")
    } else if path.exists() {
        ("damaged", "holds a demo model that is not whole; it is written again when a path to it is needed")
    } else {
        ("absent", "does not hold the demo model yet; it is written when a path to it is needed")
    };
    let facts = json!({"folder": folder.display().to_string(), "demo": state});
    Finding::new("cache", format!("{} {found}", folder.display()), facts)
}
