//! What the audit log says.

use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

/// Lines of the whole process, in their order.
#[derive(Clone, Default)]
pub(crate) struct Audit(Arc<Mutex<Vec<String>>>);

static AUDIT: OnceLock<Audit> = OnceLock::new();

impl Audit {
    pub(crate) fn of_process() -> Self {
        AUDIT
            .get_or_init(|| {
                let audit = Self::default();
                let subscriber = Registry::default().with(audit.clone());
                tracing::subscriber::set_global_default(subscriber).expect("the first one");
                audit
            })
            .clone()
    }

    /// The lines about one who called from this address. Each is told once: another one may call from there later.
    pub(crate) fn about(&self, peer: &str) -> Vec<String> {
        let word = format!("peer={peer};");
        let mut lines = self.0.lock();
        let (about, others) = lines.drain(..).partition(|line: &String| line.contains(&word));
        *lines = others;
        about
    }

    pub(crate) fn all(&self) -> String {
        self.0.lock().join("\n")
    }
}

impl<S: tracing::Subscriber> Layer<S> for Audit {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "audit" {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().push(line.0);
        }
    }
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{}={value:?};", field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, "{}={value};", field.name());
    }
}
