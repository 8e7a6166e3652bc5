//! Rewrites `/metrics/cadvisor` of a worker's kubelet, line by line.
//!
//! What leaves is `container_*` of tenants, and whether the kubelet could look. What is said of no pod is of the machine (`machine_*`, `id="/"`, slices of the system), and
//! is not offered as anything smaller: a virtual node is no cgroup.
//!
//! | label | becomes |
//! |---|---|
//! | `namespace`, `pod` | those of the V pod |
//! | `container` | itself: containers have the same names. One that the worker cluster added does not leave |
//! | `id` | `/kubepods/pod<V uid>/<name>`. Not the path in P, which says P's uid; not nothing either, since it is what tells a container from the one before it |
//! | `name` | the runtime's id of the container; a hash of it where runtimes put names of pods there |
//! | `image` | itself, which V knows from the pod's status. `pause` for a pod's sandbox, whose image is the lender's affair; dashboards ask for `image!=""` |
//! | of cadvisor's own (`device`, `interface`, ...) | itself |
//! | any other | the series does not leave: nobody has looked at what it says |

use std::borrow::Cow;

use super::{Freshness, Tally, Tenant, Tenants};
use crate::exposition::{Line, Lines, Nonsense, Sample, Writer};
use crate::naming::md5;

/// Labels that say something of a series and nothing of where it runs.
const HARMLESS: [&str; 18] = [
    "cpu",
    "device",
    "event",
    "failure_type",
    "interface",
    "kind",
    "major",
    "minor",
    "node",
    "node_id",
    "operation",
    "pagesize",
    "scope",
    "state",
    "tcp_state",
    "type",
    "udp_state",
    "ulimit",
];

/// Whether the kubelet could look.
const ERROR: &str = "container_scrape_error";

/// Takes an answer as it comes, and gives what leaves of it.
#[derive(Debug)]
pub struct Cadvisor<'a> {
    lines: Lines,
    rewriting: Rewriting<'a>,
}

#[derive(Debug)]
struct Rewriting<'a> {
    tenants: &'a Tenants,
    fresh: Freshness,
    /// The family that is being told, which is only announced if something of it leaves.
    family: String,
    help: Option<String>,
    kind: Option<String>,
    tally: Tally,
}

impl<'a> Cadvisor<'a> {
    /// Of these pods, as of now.
    pub fn new(tenants: &'a Tenants, fresh: Freshness) -> Self {
        let rewriting = Rewriting {
            tenants,
            fresh,
            family: String::new(),
            help: None,
            kind: None,
            tally: Tally::default(),
        };
        Self { lines: Lines::new(), rewriting }
    }

    /// The next piece of the answer; what leaves of it is added to `text`, in whole lines.
    pub fn feed(&mut self, chunk: &[u8], text: &mut String) {
        let Self { lines, rewriting } = self;
        lines.feed(chunk, |line| rewriting.take(line, text));
    }

    /// There is no more.
    pub fn finish(mut self, text: &mut String) -> Tally {
        let Self { lines, rewriting } = &mut self;
        lines.finish(|line| rewriting.take(line, text));
        self.rewriting.tally
    }
}

/// What a label becomes; `None` if its series does not leave.
type Rewritten<'s> = Option<(&'s str, Cow<'s, str>)>;

impl<'a> Rewriting<'a> {
    fn take(&mut self, line: Result<Line<'_>, Nonsense>, text: &mut String) {
        match line {
            Ok(Line::Help { name, text }) => {
                self.about(name);
                self.help = Some(text.to_owned());
            }
            Ok(Line::Type { name, kind }) => {
                self.about(name);
                self.kind = Some(kind.to_owned());
            }
            Ok(Line::Sample(sample)) => self.sample(&sample, text),
            Ok(Line::Blank | Line::End) => {}
            Err(_) => self.tally.nonsense += 1,
        }
    }

    fn about(&mut self, family: &str) {
        if self.family != family {
            family.clone_into(&mut self.family);
            (self.help, self.kind) = (None, None);
        }
    }

    fn sample(&mut self, sample: &Sample<'_>, text: &mut String) {
        if sample.name == ERROR && sample.labels.is_empty() {
            self.keep(sample, &[], text);
            return;
        }
        let Some(labels) = self.tenant(sample).and_then(|tenant| rewritten(sample, tenant)) else {
            self.tally.foreign += 1;
            return;
        };
        if self.fresh.allows(sample.at) {
            self.keep(sample, &labels, text);
        } else {
            self.tally.stale += 1;
        }
    }

    fn tenant(&self, sample: &Sample<'_>) -> Option<&'a Tenant> {
        if !sample.name.starts_with("container_") {
            return None;
        }
        let tenant = self.tenants.behind(&sample.labels.get("namespace")?, &sample.labels.get("pod")?)?;
        let of_machine = tenant.host_network && sample.name.starts_with("container_network_");
        let container = sample.labels.get("container").unwrap_or_default();
        (!of_machine && (is_sandbox(&container) || tenant.has(&container))).then_some(tenant)
    }

    fn keep(&mut self, sample: &Sample<'_>, labels: &[(&str, Cow<'_, str>)], text: &mut String) {
        self.tally.kept += 1;
        let mut writer = Writer::new(text);
        if self.family == sample.name {
            if let Some(help) = self.help.take() {
                writer.help_as_written(sample.name, &help);
            }
            if let Some(kind) = self.kind.take() {
                writer.kind(sample.name, &kind);
            }
        }
        let labels = labels.iter().map(|(label, value)| (*label, &**value));
        writer.sample(sample.name, labels, sample.value, sample.at);
    }
}

/// The pod as a whole has no container; its sandbox has none either, or `POD`, by runtime.
fn is_sandbox(container: &str) -> bool {
    matches!(container, "" | "POD")
}

fn rewritten<'s>(sample: &Sample<'s>, tenant: &'s Tenant) -> Option<Vec<(&'s str, Cow<'s, str>)>> {
    let name = opaque(sample.labels.get("name").unwrap_or_default());
    let sandbox = is_sandbox(&sample.labels.get("container").unwrap_or_default());
    let label = |(label, value): (&'s str, Cow<'s, str>)| -> Rewritten<'s> {
        let value = match label {
            "namespace" => Cow::Borrowed(&*tenant.key.namespace),
            "pod" => Cow::Borrowed(&*tenant.key.name),
            "id" if name.is_empty() => format!("/kubepods/pod{}", tenant.uid).into(),
            "id" => format!("/kubepods/pod{}/{name}", tenant.uid).into(),
            "name" => name.clone(),
            "image" if sandbox && !value.is_empty() => Cow::Borrowed("pause"),
            "container" | "image" => value,
            _ if HARMLESS.contains(&label) => value,
            _ => return None,
        };
        Some((label, value))
    };
    sample.labels.iter().map(label).collect()
}

/// What a runtime calls a container. Most have nothing but hex digits; some have names of the pod in it, and its P uid.
fn opaque(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return name;
    }
    md5(&name).into()
}
