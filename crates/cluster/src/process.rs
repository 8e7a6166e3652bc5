//! What this process costs: CPU, memory, files, threads, network.
//!
//! Read from `/proc/self` at each scrape, under the names that every Prometheus client library uses, so
//! that stock dashboards work. What cannot be read is left out of the scrape.
//!
//! And what it may have: [`may_open_all`].
//!
//! Deliberately absent: machines without `/proc`. There the scrape has no `process_*` lines.

use std::fmt;

use procfs::process::{LimitValue, Process};
use procfs::{boot_time_secs, page_size, ticks_per_second};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::metrics::{Metrics, MetricsError};

const NAMES: [&str; 9] = [
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "process_threads",
    "process_network_receive_bytes_total",
    "process_network_transmit_bytes_total",
];

/// Lets this process open as many files as it could allow itself. Container runtimes start with 1,024 out of many more, for the sake of programs from the
/// days of `select`; a proxier with 4,096 streams has two sockets for each. Where it is not allowed, all stays as it is.
pub fn may_open_all() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// Adds the `process_*` families to every scrape.
pub fn export(metrics: &Metrics) -> Result<(), MetricsError> {
    metrics.collect(&NAMES, ProcessCollector)
}

#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    // Sizes and counts of one process are far below 2^53, where a float would lose the first unit.
    #[allow(clippy::cast_precision_loss)]
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Ok(process) = Process::myself() else { return Ok(()) };
        let mut gauge = |name: &str, help: &str, value: f64| {
            let metric = ConstGauge::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        let stat = process.stat().ok();
        let ticks = ticks_per_second() as f64;
        if let Some(stat) = &stat {
            gauge(
                "process_resident_memory_bytes",
                "Resident memory",
                stat.rss.saturating_mul(page_size()) as f64,
            )?;
            gauge("process_virtual_memory_bytes", "Virtual memory", stat.vsize as f64)?;
            gauge("process_threads", "Threads of the operating system", stat.num_threads as f64)?;
            if let Ok(boot) = boot_time_secs() {
                let since = boot as f64 + stat.starttime as f64 / ticks;
                gauge("process_start_time_seconds", "Start, in seconds since the epoch", since)?;
            }
        }
        if let Ok(open) = process.fd_count() {
            gauge("process_open_fds", "Open file descriptors", open as f64)?;
        }
        if let Ok(limits) = process.limits()
            && let LimitValue::Value(most) = limits.max_open_files.soft_limit
        {
            gauge("process_max_fds", "How many file descriptors may be open", most as f64)?;
        }
        let mut counter = |name: &str, help: &str, value: f64| {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        if let Some(stat) = &stat {
            let cpu = stat.utime.saturating_add(stat.stime) as f64 / ticks;
            counter("process_cpu_seconds", "CPU time, of user and system", cpu)?;
        }
        // The kernel counts bytes per network namespace, which is the pod: in a container of its own that is
        // this process. Loopback is no traffic.
        if let Ok(devices) = process.dev_status() {
            let (received, sent) = devices
                .values()
                .filter(|device| device.name != "lo")
                .fold((0_u64, 0_u64), |sum, device| (sum.0 + device.recv_bytes, sum.1 + device.sent_bytes));
            counter(
                "process_network_receive_bytes",
                "Bytes received in the network namespace, without loopback",
                received as f64,
            )?;
            counter(
                "process_network_transmit_bytes",
                "Bytes sent in the network namespace, without loopback",
                sent as f64,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name} is missing in {text}"))
            .split(' ')
            .next_back()
            .unwrap()
            .parse()
            .unwrap()
    }

    #[test]
    fn a_process_that_starts_with_few_files_takes_all_that_it_may_have() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let few = current.map(|current| current.saturating_sub(100));
        setrlimit(Resource::Nofile, Rlimit { current: few, maximum }).unwrap();
        may_open_all();
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: maximum, maximum });
    }

    #[test]
    fn a_stock_dashboard_finds_what_it_asks_for() {
        let metrics = Metrics::new("test");
        export(&metrics).unwrap();
        let text = metrics.encode();
        for name in NAMES {
            assert!(value(&text, name) >= 0.0);
        }
        assert!(value(&text, "process_resident_memory_bytes") > 1e6);
        assert!(value(&text, "process_threads") >= 1.0);
        #[allow(clippy::cast_precision_loss)]
        let age = jiff::Timestamp::now().as_second() as f64 - value(&text, "process_start_time_seconds");
        assert!((-5.0..86_400.0).contains(&age), "started {age} s ago");
    }

    #[test]
    fn it_is_exported_once() {
        let metrics = Metrics::new("test");
        export(&metrics).unwrap();
        assert!(export(&metrics).is_err());
    }
}
