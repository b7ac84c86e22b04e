//! Files under bench-results/: written once, never changed, each naming its commit, machine and command.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::machine;
use crate::workspace::Workspace;

/// Flags of every command that writes a result.
#[derive(Args, Clone)]
#[group(id = "result")]
pub struct Arguments {
    /// Write a result although tracked files differ from the commit; it says so
    #[arg(long)]
    allow_dirty: bool,
    /// Name of this machine in the file's name [default: its host name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[cfg(test)]
impl Arguments {
    pub fn new(allow_dirty: bool, host: Option<&str>) -> Self {
        Self { allow_dirty, host: host.map(str::to_owned) }
    }
}

/// Where and from what a result is made; taken before the measurement, so that a commit made meanwhile changes nothing.
pub struct Origin {
    path: PathBuf,
    head: Value,
    /// What paths below the workspace's root begin with.
    root: String,
}

impl Origin {
    /// Refuses a dirty tree and a name that is taken, before any time is spent.
    pub fn new(workspace: &Workspace, suite: &str, arguments: &Arguments) -> Result<Self> {
        Self::made(workspace, suite, arguments, workspace.commit()?, workspace.is_dirty()?)
    }

    /// As [`new`](Self::new) for a program of this commit that was built elsewhere.
    pub fn of_commit(
        workspace: &Workspace,
        suite: &str,
        arguments: &Arguments,
        commit: String,
    ) -> Result<Self> {
        Self::made(workspace, suite, arguments, commit, false)
    }

    fn made(
        workspace: &Workspace,
        suite: &str,
        arguments: &Arguments,
        commit: String,
        dirty: bool,
    ) -> Result<Self> {
        if dirty && !arguments.allow_dirty {
            bail!(
                "tracked files differ from the commit, so a result would name the wrong source; commit, or --allow-dirty"
            );
        }
        let date = machine::today();
        let host = arguments.host.as_deref().map_or_else(machine::host, machine::file_word);
        let name = format!("{date}-{host}-{suite}-{commit}{}.json", if dirty { "-dirty" } else { "" });
        let path = workspace.root.join("bench-results").join(&name);
        if path.exists() {
            bail!("bench-results/{name} exists, and results are never overwritten");
        }
        let command: Vec<String> = std::env::args().skip(1).collect();
        let head = json!({
            "suite": suite,
            "date": date,
            "host": host,
            "commit": commit,
            "dirty": dirty,
            "command": format!("cargo xtask {}", command.join(" ")),
            "machine": machine::describe(),
        });
        Ok(Self { path, head, root: format!("{}/", workspace.root.display()) })
    }

    /// Writes the head and the fields of `body` as one JSON object.
    pub fn write(self, body: Value) -> Result<PathBuf> {
        let (mut object, Value::Object(body)) = (self.head, body) else {
            bail!("a result's body must be a JSON object");
        };
        if let Some(object) = object.as_object_mut() {
            object.extend(body);
        }
        let name = self.path.display().to_string();
        // Where the tree lies is nobody's business, and says nothing elsewhere.
        let mut text = serde_json::to_string_pretty(&object)?.replace(&self.root, "");
        text.push('\n');
        // `create_new`: two runs that end at once do not overwrite each other.
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&self.path).context(name.clone())?;
        file.write_all(text.as_bytes()).context(name)?;
        Ok(self.path)
    }
}
