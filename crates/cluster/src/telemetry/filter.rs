//! Which lines are logged, and how that changes while the process runs.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The target of the audit log: one line per write to an API server.
pub const AUDIT: &str = "audit";

/// A filter that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// Neither a level nor a directive.
    #[error(
        "{0:?} is no log level: use off, error, warn, info, debug, trace, or a filter such as \
         info,kubeocean_cluster=debug"
    )]
    NoLevel(String),
    /// The parser's word.
    #[error(
        "the log filter {filter:?} cannot be read: use parts such as kubeocean_cluster=debug, with commas"
    )]
    Syntax {
        /// As given.
        filter: String,
        /// Where it fails.
        #[source]
        cause: tracing_subscriber::filter::ParseError,
    },
    /// The subscriber is gone.
    #[error("logging has ended: the log level can no longer be changed")]
    Ended,
}

/// Reads a level or a filter. A lone level is that of our own crates; what is below `info` of libraries is
/// logged only if a filter names them, because one debug line of ours comes with fifty of hyper's.
pub(super) fn parse(text: &str) -> Result<EnvFilter, FilterError> {
    let text = text.trim();
    let mut filter = match text.parse::<LevelFilter>() {
        // A number would be read as a level here, and as a verbosity by who knows zap.
        _ if text.is_empty() || text.parse::<u32>().is_ok() => {
            return Err(FilterError::NoLevel(text.to_owned()));
        }
        Ok(level) if level > LevelFilter::INFO => format!("info,kubeocean={level}"),
        Ok(level) => level.to_string(),
        Err(_) => text.to_owned(),
    };
    let parts: Vec<&str> = filter.split(',').map(str::trim).collect();
    // The parser takes any unknown word for a target and logs all of it, and nothing at all for `error`.
    let level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    if let Some(wrong) = parts.iter().find(|part| !part.contains(['=', '[', ']', '{']) && !level(part)) {
        return Err(FilterError::NoLevel((*wrong).to_owned()));
    }
    if !parts.iter().any(|part| part.split(['=', '[']).next() == Some(AUDIT)) {
        filter.push_str(",audit=info");
    }
    EnvFilter::builder()
        .parse(&filter)
        .map_err(|cause| FilterError::Syntax { filter: text.to_owned(), cause })
}

type Reload = Box<dyn Fn(EnvFilter) -> Result<(), FilterError> + Send + Sync>;

/// Reads and changes the log level of the running process. Clones control the same.
#[derive(Clone)]
pub struct LogControl(Arc<Control>);

struct Control {
    current: Mutex<String>,
    reload: Reload,
}

impl LogControl {
    pub(super) fn new(current: String, reload: Reload) -> Self {
        Self(Arc::new(Control { current: Mutex::new(current), reload }))
    }

    /// The filter as it was last given.
    pub fn get(&self) -> String {
        self.0.current.lock().clone()
    }

    /// Changes it, at once and for all threads. A filter that cannot be read changes nothing.
    pub fn set(&self, filter: &str) -> Result<(), FilterError> {
        let parsed = parse(filter)?;
        let mut current = self.0.current.lock();
        (self.0.reload)(parsed)?;
        filter.trim().clone_into(&mut current);
        Ok(())
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogControl").field(&self.get()).finish()
    }
}
