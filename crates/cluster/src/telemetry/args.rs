//! The flags about logs, in our words and in those of controller-runtime.

use std::str::FromStr;

use clap::ValueEnum;

/// How a component logs. Where our own flag and a `--zap-*` flag say different things, ours counts.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// One JSON object per line, or lines for people [default: json]
    #[arg(long, value_enum, ignore_case = true, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// off, error, warn, info, debug, trace, or a filter such as `info,kubeocean_cluster=debug`. The audit log
    /// stays on unless `audit=off` is part of it [default: info]
    #[arg(long, value_name = "FILTER", value_parser = parse_filter)]
    pub log_level: Option<String>,

    /// As `--zap-encoder=console --zap-log-level=debug --zap-stacktrace-level=warn`, where those are not given
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        value_parser = parse_go_bool
    )]
    pub zap_devel: bool,

    /// The same as `--log-format`
    #[arg(long, value_enum, ignore_case = true, value_name = "ENCODER")]
    pub zap_encoder: Option<ZapEncoder>,

    /// The same as `--log-level`: debug, info, error, panic, or a verbosity: 1 is debug, more is trace
    #[arg(long, value_name = "LEVEL")]
    pub zap_log_level: Option<ZapLevel>,

    /// From which level on a line carries the stack of its caller: info, warn, error, panic [default: none]
    #[arg(long, value_name = "LEVEL")]
    pub zap_stacktrace_level: Option<StackLevel>,

    /// How a line tells its time [default: iso8601]
    #[arg(long, value_enum, ignore_case = true, value_name = "ENCODING")]
    pub zap_time_encoding: Option<TimeEncoding>,
}

/// See [`LogArgs::log_format`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One object per line.
    Json,
    /// For people.
    Pretty,
}

/// See [`LogArgs::zap_encoder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ZapEncoder {
    /// One object per line.
    Json,
    /// For people.
    Console,
}

/// See [`LogArgs::zap_time_encoding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeEncoding {
    /// Seconds since 1970, with a fraction.
    Epoch,
    /// Milliseconds since 1970, with a fraction.
    Millis,
    /// Nanoseconds since 1970.
    Nano,
    /// `2026-03-01T08:00:00.000Z`
    Iso8601,
    /// `2026-03-01T08:00:00Z`
    Rfc3339,
    /// `2026-03-01T08:00:00.000000001Z`
    Rfc3339nano,
}

/// See [`LogArgs::zap_log_level`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZapLevel(&'static str);

impl FromStr for ZapLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "debug" => Ok(Self("debug")),
            "info" => Ok(Self("info")),
            "error" => Ok(Self("error")),
            // Nothing of ours logs at that level: it is how one asks zap for silence.
            "panic" => Ok(Self("off")),
            number => match number.parse::<i8>() {
                Ok(1) => Ok(Self("debug")),
                Ok(2..) => Ok(Self("trace")),
                _ => Err("use debug, info, error, panic, or a whole number from 1 to 127".to_owned()),
            },
        }
    }
}

/// See [`LogArgs::zap_stacktrace_level`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackLevel(pub(super) Option<tracing::Level>);

impl FromStr for StackLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "info" => Ok(Self(Some(tracing::Level::INFO))),
            "warn" => Ok(Self(Some(tracing::Level::WARN))),
            "error" => Ok(Self(Some(tracing::Level::ERROR))),
            // No line is that grave; a panic prints its own stack.
            "panic" => Ok(Self(None)),
            _ => Err("use info, warn, error or panic".to_owned()),
        }
    }
}

/// What [`LogArgs`] come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogPlan {
    pub(super) format: LogFormat,
    pub(super) filter: String,
    pub(super) stack: Option<tracing::Level>,
    pub(super) time: TimeEncoding,
}

impl LogArgs {
    pub(super) fn plan(&self) -> LogPlan {
        let Self {
            log_format,
            log_level,
            zap_devel,
            zap_encoder,
            zap_log_level,
            zap_stacktrace_level,
            zap_time_encoding,
        } = self;
        let format = match (log_format, zap_encoder, zap_devel) {
            (Some(format), _, _) => *format,
            (None, Some(ZapEncoder::Json), _) | (None, None, false) => LogFormat::Json,
            (None, Some(ZapEncoder::Console), _) | (None, None, true) => LogFormat::Pretty,
        };
        let filter = match (log_level, zap_log_level, zap_devel) {
            (Some(filter), _, _) => filter,
            (None, Some(ZapLevel(level)), _) => *level,
            (None, None, true) => "debug",
            (None, None, false) => "info",
        };
        let stack = match (zap_stacktrace_level, zap_devel) {
            (Some(StackLevel(level)), _) => *level,
            (None, true) => Some(tracing::Level::WARN),
            // zap's default is `error`. Our errors carry their causes, and the stack of an async task shows
            // the runtime: it is there for who asks.
            (None, false) => None,
        };
        LogPlan {
            format,
            filter: filter.to_owned(),
            stack,
            time: zap_time_encoding.unwrap_or(TimeEncoding::Iso8601),
        }
    }
}

/// As Go's `flag` package reads booleans.
fn parse_go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

fn parse_filter(text: &str) -> Result<String, String> {
    super::filter::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    /// What the component does.
    #[derive(Parser)]
    struct Component {
        #[command(flatten)]
        log: LogArgs,
    }

    fn plan(flags: &[&str]) -> LogPlan {
        let words = ["component"].iter().chain(flags);
        Component::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).log.plan()
    }

    fn refused(flag: &str) -> String {
        match Component::try_parse_from(["component", flag]) {
            Ok(_) => panic!("{flag} is accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_help_is_still_that_of_the_component() {
        let help = Component::command().render_help().to_string();
        assert!(help.starts_with("What the component does\n"), "{help}");
    }

    #[test]
    fn json_at_info_is_the_default() {
        let expected = LogPlan {
            format: LogFormat::Json,
            filter: "info".to_owned(),
            stack: None,
            time: TimeEncoding::Iso8601,
        };
        assert_eq!(plan(&[]), expected);
        assert_eq!(plan(&["--zap-devel=false"]), expected);
    }

    #[test]
    fn zap_devel_sets_what_nobody_else_sets() {
        let devel = plan(&["--zap-devel"]);
        assert_eq!((devel.format, devel.filter.as_str()), (LogFormat::Pretty, "debug"));
        assert_eq!(devel.stack, Some(tracing::Level::WARN));

        let mixed = plan(&["--zap-devel=true", "--zap-encoder=json", "--zap-log-level", "error"]);
        assert_eq!((mixed.format, mixed.filter.as_str()), (LogFormat::Json, "error"));
    }

    #[test]
    fn zap_levels_mean_what_controller_runtime_means() {
        for (zap, ours) in [
            ("info", "info"),
            ("Debug", "debug"),
            ("1", "debug"),
            ("5", "trace"),
            ("error", "error"),
            ("panic", "off"),
        ] {
            assert_eq!(plan(&[&format!("--zap-log-level={zap}")]).filter, ours);
        }
        for wrong in ["0", "-1", "warning", "999"] {
            assert!(refused(&format!("--zap-log-level={wrong}")).contains("from 1 to 127"));
        }
    }

    #[test]
    fn our_own_flags_win() {
        let plan = plan(&[
            "--zap-log-level=error",
            "--log-level=warn,kubeocean=trace",
            "--zap-encoder=json",
            "--log-format=pretty",
        ]);
        assert_eq!((plan.format, plan.filter.as_str()), (LogFormat::Pretty, "warn,kubeocean=trace"));
    }

    #[test]
    fn a_level_that_does_not_exist_is_refused_with_those_that_do() {
        assert!(refused("--log-level=verbose").contains("error, warn, info, debug, trace"));
        assert!(refused("--zap-stacktrace-level=debug").contains("info, warn, error or panic"));
        assert!(refused("--zap-time-encoding=unix").contains("rfc3339nano"));
    }
}
