//! The README's first command, as a newcomer runs it: `cargo run --release -p maya-cli -- serve`, and one chat request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{describe, run};
use crate::workspace::Workspace;

/// From the start of a built binary to its address; the demo model needs none of it, a loaded machine may.
const START: Duration = Duration::from_secs(60);
/// For an answer, and for the end after an interrupt.
const ANSWER: Duration = Duration::from_secs(120);
/// The demo model was trained on such questions; its answer names the city.
const REQUEST: &str = r#"{"messages":[{"role":"user","content":"What is the capital of France?"}],"temperature":0,"max_tokens":40,"enable_thinking":false}"#;

/// Starts the server on a free port, asks one question, and ends it as Ctrl-C does.
pub fn check(workspace: &Workspace) -> Result<()> {
    let words = ["run", "--release", "-p", "maya-cli", "--", "serve", "--port", "0"];
    // Built beforehand, so that the time below is the program's own.
    run(workspace.command("cargo").args(["build", "--release", "-p", "maya-cli"]))?;
    let mut command = workspace.command("cargo");
    command.args(words).env_remove("MAYA_MODEL").stdin(Stdio::null()).stdout(Stdio::piped());
    println!("{}", describe(&command));
    let mut server = Server::start(command)?;
    let address = server.address()?;
    let answer = post(&address, "/v1/chat/completions", REQUEST)?;
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
    println!("asked {address}: {content}");
    if !content.contains("Paris") {
        bail!("the demo model's answer names no Paris: {answer}");
    }
    server.interrupt()
}

/// A running server, perhaps behind `cargo run`, which waits for the program it started. It is not left behind if a check fails.
pub struct Server(Child);

impl Server {
    /// Starts it; its output is piped.
    pub fn start(mut command: Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        Ok(Self(command.spawn().with_context(|| format!("cannot start {program}"))?))
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The address in the block that it prints.
    pub fn address(&mut self) -> Result<String> {
        let stdout = self.0.stdout.take().context("stdout was piped")?;
        let (sender, receiver) = mpsc::channel();
        // The thread reads on to the end, so that the server never blocks on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                println!("  {line}");
                let url = line.split_whitespace().find_map(|w| w.strip_prefix("http://"));
                if let Some(url) = url {
                    let address = url.split('/').next().unwrap_or_default().to_owned();
                    // Nobody listens for the second one.
                    let _ = sender.send(address);
                }
            }
        });
        receiver.recv_timeout(START).context("maya serve printed no address")
    }

    /// An interrupt ends the program, and with it `cargo run`, with exit code 0.
    pub fn interrupt(&mut self) -> Result<()> {
        self.signal("INT")?;
        let begin = Instant::now();
        while begin.elapsed() < ANSWER {
            if let Some(status) = self.0.try_wait()? {
                if !status.success() {
                    bail!("after an interrupt maya serve ended with {status}");
                }
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("an interrupt did not end maya serve within {} s", ANSWER.as_secs())
    }

    /// On Unix `cargo run` becomes the program that it runs, so its id is the server's.
    fn signal(&self, name: &str) -> Result<()> {
        run(Command::new("kill").args(["-s", name, &self.0.id().to_string()]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            // Best effort: the check has failed already, and its error is the one to report.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// A request over a connection of its own.
fn ask(address: &str, path: &str, body: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(ANSWER))?;
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )?;
    Ok(stream)
}

/// A request that is left when its answer has begun.
pub fn break_off(address: &str, path: &str, body: &str) -> Result<()> {
    let mut stream = ask(address, path, body)?;
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).context("the answer did not begin")?;
    match &begun {
        b"HTTP/1.1 200" => Ok(()),
        other => bail!("the server answered {}", String::from_utf8_lossy(other)),
    }
}

/// The body of a 200 answer as JSON.
pub fn post(address: &str, path: &str, body: &str) -> Result<Value> {
    let mut answer = String::new();
    let mut stream = ask(address, path, body)?;
    stream.read_to_string(&mut answer).context("the answer broke off")?;
    parse(&answer)
}

fn parse(answer: &str) -> Result<Value> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no body")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        bail!("the server answered {status}: {body}");
    }
    serde_json::from_str(body).with_context(|| format!("the body is not JSON: {body}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_200_with_json_is_an_answer() {
        assert_eq!(parse("HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"x\":1}").expect("good")["x"], 1);
        assert!(parse("HTTP/1.1 400 Bad Request\r\n\r\n{}").is_err());
        assert!(parse("HTTP/1.1 200 OK\r\n\r\nhello").is_err() && parse("").is_err());
    }
}
