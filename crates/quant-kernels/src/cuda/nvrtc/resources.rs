//! What the assembler reports of each entry, read from the compiler's log.

/// What an entry takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// The entry.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread for arrays and spills, in bytes.
    pub stack_bytes: u32,
    /// Bytes of registers written to local memory for want of more, each place counted once.
    pub spill_store_bytes: u32,
    /// Bytes read back.
    pub spill_load_bytes: u32,
    /// Static shared memory of a block, in bytes.
    pub smem_bytes: u32,
}

/// One record for every entry, in the order of the log.
pub fn parse(log: &str) -> Vec<Resources> {
    let mut found: Vec<Resources> = Vec::new();
    // Functions that are called and not inlined have properties, too, which are not the entry's.
    let mut of_entry = false;
    for line in log.lines().filter_map(report) {
        if let Some(rest) = line.strip_prefix("Compiling entry function '") {
            let entry = rest.split('\'').next().unwrap_or_default().to_owned();
            found.push(Resources { entry, ..Resources::default() });
        } else if let Some(name) = line.strip_prefix("Function properties for ") {
            of_entry = found.last().is_some_and(|r| r.entry == name.trim());
        } else if let Some(last) = found.last_mut() {
            for part in line.split(',').map(str::trim) {
                let Some(rest) = part.strip_prefix("Used ") else {
                    count(part, last, of_entry);
                    continue;
                };
                if let Some(n) = number(rest, " registers") {
                    last.registers = n;
                }
            }
        }
    }
    found
}

fn count(part: &str, last: &mut Resources, of_entry: bool) {
    if let Some(n) = number(part, " bytes smem") {
        last.smem_bytes = n;
    } else if !of_entry {
    } else if let Some(n) = number(part, " bytes stack frame") {
        last.stack_bytes = n;
    } else if let Some(n) = number(part, " bytes spill stores") {
        last.spill_store_bytes = n;
    } else if let Some(n) = number(part, " bytes spill loads") {
        last.spill_load_bytes = n;
    }
}

/// The number in `256 bytes smem`, given what follows it.
fn number(part: &str, unit: &str) -> Option<u32> {
    part.strip_suffix(unit)?.parse().ok()
}

/// What a line of a report says: behind `ptxas info    :`, behind the dots of its continuation, or indented as some
/// versions continue it.
fn report(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("ptxas") {
        Some(rest) => {
            let rest = rest.trim_start();
            let rest = rest.strip_prefix("info").map_or(rest, str::trim_start);
            rest.strip_prefix([':', '.'])?
        }
        None => line.strip_prefix("    ").filter(|rest| rest.contains(" bytes stack frame"))?,
    };
    Some(rest.trim())
}

/// The log without reports and without the word about old architectures.
pub fn warnings(log: &str) -> String {
    let is_deprecation = |line: &str| {
        line.starts_with("nvrtc: warning: Architectures prior to ") && line.contains("deprecated")
    };
    let kept = log.lines().filter(|line| report(line).is_none() && !is_deprecation(line));
    kept.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVRTC 12.9 for sm_70, with a warning and a kernel whose array lies in local memory.
    const LOG: &str = "\
nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated and may be removed in a future release
probe.cu(19): warning #177-D: variable \"unused\" was declared but never referenced
  int unused=3;
      ^

Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"

ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'big' for 'sm_70'
ptxas info    : Function properties for big
ptxas         .     256 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 96 registers, used 0 barriers, 256 bytes cumulative stack size, 400 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 80.233 ms
ptxas info    : Compiling entry function 'probe_axpy' for 'sm_70'
ptxas info    : Function properties for probe_axpy
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers, 388 bytes cmem[0]
ptxas info    : Function properties for called
ptxas         .     8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Compile time = 1.818 ms
";

    #[test]
    fn entries_are_counted() {
        let big = Resources {
            entry: "big".to_owned(),
            registers: 96,
            stack_bytes: 256,
            spill_store_bytes: 16,
            spill_load_bytes: 24,
            smem_bytes: 400,
        };
        let axpy = Resources { entry: "probe_axpy".to_owned(), registers: 14, ..Resources::default() };
        assert_eq!(parse(LOG), [big, axpy]);
        assert_eq!(parse("no report\n"), []);
    }

    #[test]
    fn warnings_are_what_remains() {
        let left = warnings(LOG);
        assert!(left.starts_with("probe.cu(19): warning") && left.ends_with("<warning-number>\""), "{left}");
        let quiet: String =
            LOG.lines().take(1).chain(LOG.lines().skip(7)).map(|l| format!("{l}\n")).collect();
        assert_eq!(warnings(&quiet), "");
        let loud = format!("{quiet}ptxas warning : Value of threads per SM is out of range\n");
        assert_eq!(warnings(&loud), "ptxas warning : Value of threads per SM is out of range");
    }
}
