//! What people see: progress lines, tables, sizes.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use kubeocean_sandbox::Progress;
use kubeocean_sandbox::lab::BuildEvent;

/// Where there is no terminal, a line that only says "still building" comes this seldom.
const QUIET_LINE_EVERY: Duration = Duration::from_secs(30);

/// Says something beside the output proper. Where nobody reads standard error, nobody hears it.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints progress to standard error: one line that changes on a terminal, a few lines elsewhere.
pub(crate) struct ProgressLines {
    terminal: bool,
    open_line: bool,
    last_line: Option<Instant>,
}

impl ProgressLines {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), open_line: false, last_line: None }
    }

    /// A line that stays.
    pub(crate) fn line(&mut self, text: &str) {
        self.close();
        note(text);
    }

    /// A line that the next one replaces.
    pub(crate) fn passing(&mut self, text: &str) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
            let _ = std::io::stderr().flush();
            self.open_line = true;
        } else if self.last_line.is_none_or(|last| last.elapsed() >= QUIET_LINE_EVERY) {
            self.last_line = Some(Instant::now());
            self.line(text);
        }
    }

    /// Takes the passing line away.
    pub(crate) fn close(&mut self) {
        if std::mem::take(&mut self.open_line) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    pub(crate) fn show(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Lab(event) => self.build(event),
            Progress::PortTaken { cluster, port } => {
                self.line(&format!(
                    "  {cluster}: port {port} was taken by another program, trying another one"
                ));
            }
            Progress::ControlPlaneReady { cluster, after } => {
                self.line(&format!("✓ {cluster}: control plane ready after {}", seconds(*after)));
            }
            Progress::NodeReady { cluster, node, after } => {
                self.line(&format!("✓ {cluster}: node {node} ready after {} more", seconds(*after)));
            }
        }
    }

    pub(crate) fn build(&mut self, event: &BuildEvent<'_>) {
        match event {
            BuildEvent::PassedOver(rejected) => {
                self.line(&format!("  not used: {} {}", rejected.path.display(), rejected.why));
            }
            BuildEvent::Waiting { lock } => {
                self.line(&format!("  waiting for another build (it holds {})", lock.display()));
            }
            BuildEvent::Building { program, version, number, of, elapsed } => {
                if elapsed.as_secs() == 0 {
                    self.last_line = None;
                }
                self.passing(&format!(
                    "  [{number}/{of}] building {program} {version} … {}",
                    seconds(*elapsed)
                ));
            }
            BuildEvent::Built { program, version, number, of, elapsed, left } => {
                let left = match left.as_slice() {
                    [] => "that was all".to_owned(),
                    left => {
                        let names: Vec<_> = left.iter().map(|program| program.name()).collect();
                        format!("left: {}", names.join(", "))
                    }
                };
                self.line(&format!(
                    "✓ [{number}/{of}] built {program} {version} in {}; {left}",
                    seconds(*elapsed)
                ));
            }
        }
    }
}

/// `4.2 s`, `3 min 05 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs();
    if whole < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

/// `512 MiB`.
pub(crate) fn mebibytes(kib: u64) -> String {
    format!("{} MiB", kib.div_ceil(1024))
}

/// A table with aligned columns, as kubectl prints them.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(header.get(column).map(|title| title.len())).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<_> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        padded.join("   ").trim_end().to_owned()
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push('\n');
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let rows = vec![vec!["dev".into(), "ready".into()], vec!["a-long-name".into(), "x".into()]];
        assert_eq!(
            table(&["NAME", "PHASE"], &rows),
            "NAME          PHASE\ndev           ready\na-long-name   x"
        );
    }

    #[test]
    fn durations_are_read_at_a_glance() {
        assert_eq!(seconds(Duration::from_millis(4210)), "4.2 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
