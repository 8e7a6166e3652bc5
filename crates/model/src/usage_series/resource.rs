//! Reads `/metrics/resource` of a worker's kubelet.
//!
//! It is small, so what is ours of it is kept: the node's own series come in its middle, and are ours to make from all of it. Families that are
//! not known here do not leave: nobody has looked at what their labels say.

use std::borrow::Cow;

use super::{Amounts, Cpu, Freshness, PodUsage, Point, Tally, Tenants, Usage, is_amount};
use crate::exposition::{Line, Lines, Nonsense, Sample};

/// Takes an answer as it comes.
#[derive(Debug)]
pub struct Resource<'a> {
    lines: Lines,
    reading: Reading<'a>,
}

#[derive(Debug)]
struct Reading<'a> {
    tenants: &'a Tenants,
    fresh: Freshness,
    usage: Usage,
    tally: Tally,
}

impl<'a> Resource<'a> {
    /// Of these pods, as of now.
    pub fn new(tenants: &'a Tenants, fresh: Freshness) -> Self {
        let reading = Reading { tenants, fresh, usage: Usage::default(), tally: Tally::default() };
        Self { lines: Lines::new(), reading }
    }

    /// The next piece of the answer.
    pub fn feed(&mut self, chunk: &[u8]) {
        let Self { lines, reading } = self;
        lines.feed(chunk, |line| reading.take(line));
    }

    /// There is no more.
    pub fn finish(mut self) -> (Usage, Tally) {
        let Self { lines, reading } = &mut self;
        lines.finish(|line| reading.take(line));
        let Reading { mut usage, tally, .. } = self.reading;
        usage.pods.values_mut().for_each(forget_zeros);
        (usage, tally)
    }
}

/// A kubelet whose pods have no control group of their own says zero of each, whatever its containers use. A zero says no more than nothing: the
/// containers are added up then.
fn forget_zeros(pod: &mut PodUsage) {
    let whole = &mut pod.whole;
    whole.cpu = whole.cpu.filter(|cpu| !matches!(cpu, Cpu::Total(point) if point.value == 0.0));
    for figure in [&mut whole.memory, &mut whole.swap] {
        *figure = figure.filter(|point| point.value != 0.0);
    }
}

/// The series of a kubelet that says whether it could look; the older of the two is hidden since 1.29.
const ERRORS: [&str; 2] = ["resource_scrape_error", "scrape_error"];

impl Reading<'_> {
    fn take(&mut self, line: Result<Line<'_>, Nonsense>) {
        match line {
            Ok(Line::Sample(sample)) => self.sample(&sample),
            Ok(_) => {}
            Err(_) => self.tally.nonsense += 1,
        }
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let (name, tally) = (sample.name, &mut self.tally);
        if let Some(error) = ERRORS.into_iter().find(|error| *error == name) {
            let is_new = self.usage.errors.iter().all(|(known, _)| *known != error);
            if is_new && is_amount(sample.value) && sample.labels.is_empty() {
                self.usage.errors.push((error, sample.value));
            } else {
                tally.nonsense += 1;
            }
            return;
        }
        // The number is the machine's; that it was looked at now is true of our pods as well, of which there may be none.
        if name == "node_cpu_usage_seconds_total" && sample.labels.is_empty() && self.fresh.allows(sample.at)
        {
            self.usage.looked_at(self.fresh.moment(sample.at));
        }
        let of_pods = name.starts_with("pod_");
        let Some(field) = Field::of(name) else {
            tally.foreign += 1;
            return;
        };
        let label = |name| sample.labels.get(name).unwrap_or(Cow::Borrowed(""));
        let (namespace, pod, container) = (label("namespace"), label("pod"), label("container"));
        let tenant = self.tenants.behind(&namespace, &pod);
        let Some(tenant) = tenant.filter(|tenant| of_pods || tenant.has(&container)) else {
            tally.foreign += 1;
            return;
        };
        if !is_amount(sample.value) {
            tally.nonsense += 1;
            return;
        }
        if !self.fresh.allows(sample.at) {
            tally.stale += 1;
            self.usage.stale = true;
            return;
        }
        tally.kept += 1;
        let point =
            Point { value: sample.value, at: self.fresh.moment(sample.at), stamped: sample.at.is_some() };
        if field != Field::Start {
            self.usage.looked_at(point.at);
        }
        let usage = self.usage.pod(tenant);
        if of_pods {
            field.set(&mut usage.whole, point);
        } else {
            field.set(usage.containers.entry(container.into()).or_default(), point);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Field {
    Cpu,
    Memory,
    Swap,
    SwapLimit,
    Start,
}

impl Field {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "container_cpu_usage_seconds_total" | "pod_cpu_usage_seconds_total" => Self::Cpu,
            "container_memory_working_set_bytes" | "pod_memory_working_set_bytes" => Self::Memory,
            "container_swap_usage_bytes" | "pod_swap_usage_bytes" => Self::Swap,
            "container_swap_limit_bytes" => Self::SwapLimit,
            "container_start_time_seconds" => Self::Start,
            _ => return None,
        })
    }

    fn set(self, amounts: &mut Amounts, point: Point) {
        match self {
            Self::Cpu => amounts.cpu = Some(Cpu::Total(point)),
            Self::Memory => amounts.memory = Some(point),
            Self::Swap => amounts.swap = Some(point),
            Self::SwapLimit => amounts.swap_limit = Some(point),
            Self::Start => amounts.start = Some(point),
        }
    }
}
