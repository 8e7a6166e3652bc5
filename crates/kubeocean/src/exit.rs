//! Exit codes that a script can react to.

use std::process::ExitCode;

use kubeocean_sandbox::{Error, ErrorKind};

use crate::terminal::note;

/// The table that `kubeocean --help` prints.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    done
  1    failed; the message says what and why
  2    the command line makes no sense
  3    what was named does not exist
  4    it exists already
  5    this machine lacks something that the message names
  130  interrupted (Ctrl-C)";

/// Ended by Ctrl-C: 128 + SIGINT, as shells have it.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; nothing is left behind")]
pub(crate) struct Interrupted;

/// What a command needs is not there. The message names it and the fix.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Missing(pub(crate) String);

/// A command line whose parts do not go together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Senseless(pub(crate) String);

/// Ends with this code; everything has been said already.
#[derive(Debug, thiserror::Error)]
#[error("exit code {0}")]
pub(crate) struct Silent(pub(crate) u8);

/// Prints what went wrong, with its causes, and chooses the code.
pub(crate) fn report(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // The reader of our output went away, as `| head` does: nothing to complain about. Only our own
    // writes arrive here as they are; anything else that breaks comes with a context.
    let outermost = error.chain().next().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    if outermost.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    if let Some(Silent(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    note(&format!("error: {}", with_causes(&error)));
    ExitCode::from(code(&error))
}

/// Help and version go to standard output and are no error; anything else about the command line is.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

fn code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Interrupted>().is_some() {
        return 130;
    }
    if error.downcast_ref::<Senseless>().is_some() {
        return 2;
    }
    if error.downcast_ref::<Missing>().is_some() {
        return 3;
    }
    match error.chain().find_map(|cause| cause.downcast_ref::<Error>()) {
        Some(Error::GivenUp) => 130,
        Some(error) => match error.kind() {
            ErrorKind::Usage => 2,
            ErrorKind::NotFound => 3,
            ErrorKind::AlreadyExists => 4,
            ErrorKind::Prerequisite => 5,
            ErrorKind::Failure => 1,
        },
        None => 1,
    }
}

/// The message and its causes, without those that the message repeats already.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_what_kind_of_failure_it_was() {
        let not_up = Error::NotUp { name: "dev".into(), others: String::new() };
        assert_eq!(code(&anyhow::Error::from(not_up).context("asking")), 3);
        assert_eq!(code(&anyhow::Error::from(Error::AlreadyUp { name: "dev".into() })), 4);
        assert_eq!(code(&anyhow::Error::from(Senseless("why".into()))), 2);
        assert_eq!(code(&anyhow::Error::from(Missing("it".into()))), 3);
        assert_eq!(code(&anyhow::Error::from(Interrupted)), 130);
        assert_eq!(code(&anyhow::anyhow!("anything")), 1);
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("no such file").context("reading x: no such file");
        assert_eq!(with_causes(&error), "reading x: no such file");
        let error = anyhow::anyhow!("no such file").context("reading x");
        assert_eq!(with_causes(&error), "reading x: no such file");
    }
}
