//! Runs other programs: quietly for their output, visibly for their work, with a time limit where they may hang.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// What `command` prints on stdout; its stderr passes through. A non-zero exit is an error.
pub fn output(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{name}`"))?;
    if !output.status.success() {
        bail!("`{name}` failed: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{name}` printed no UTF-8"))
}

/// Runs `command` with this process's stdout and stderr. A non-zero exit is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let name = describe(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed: {status}");
    }
    Ok(())
}

/// Runs `command` through the `timeout` program, which ends its whole process group after `limit`; without that program
/// it runs unlimited.
pub fn run_within(command: &Command, limit: Duration) -> Result<()> {
    let name = describe(command);
    let has_timeout = Command::new("timeout").arg("--version").stdout(Stdio::null()).status();
    if !has_timeout.is_ok_and(|s| s.success()) {
        return run(&mut copy(command, Command::new(command.get_program()), command.get_args()));
    }
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=20", &limit.as_secs().to_string()]).arg(command.get_program());
    let mut limited = copy(command, limited, command.get_args());
    let status = limited.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{name}`"))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(124 | 137) => bail!("`{name}` was ended after {} s", limit.as_secs()),
        _ => bail!("`{name}` failed: {status}"),
    }
}

/// `to` with the arguments, folder and environment changes of `from`.
fn copy<'a>(
    from: &Command,
    mut to: Command,
    arguments: impl Iterator<Item = &'a std::ffi::OsStr>,
) -> Command {
    to.args(arguments);
    if let Some(folder) = from.get_current_dir() {
        to.current_dir(folder);
    }
    for (key, value) in from.get_envs() {
        match value {
            Some(value) => to.env(key, value),
            None => to.env_remove(key),
        };
    }
    to
}

/// The command line as a person would type it.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_failure_are_told_apart() {
        assert_eq!(output(Command::new("sh").args(["-c", "echo hello"])).expect("runs"), "hello\n");
        let e = output(Command::new("sh").args(["-c", "exit 3"])).expect_err("fails");
        assert!(e.to_string().contains("exit 3"), "{e}");
        assert!(run(&mut Command::new("no-such-program-here")).is_err());
    }

    #[test]
    fn a_hanging_command_is_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60"]);
        let e = run_within(&command, Duration::from_secs(1)).expect_err("ended");
        assert!(e.to_string().contains("after 1 s"), "{e}");
        let mut command = Command::new("sh");
        command.args(["-c", "test \"$MARK\" = yes"]).env("MARK", "yes");
        run_within(&command, Duration::from_secs(10)).expect("environment is carried");
    }
}
