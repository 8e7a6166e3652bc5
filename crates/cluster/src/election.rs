//! Elections as a process takes part in them: its flags, and the elector.

use std::time::Duration;

use kubeocean_model::key::Virtual;
use kubeocean_model::naming::is_dns_label;

use crate::apply::Applier;
use crate::client::Cluster;
use crate::clock::Clock;
use crate::leader::{Election, ElectionError, Elector, Leadership};
use crate::telemetry::Environment;

/// Who of several replicas writes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Let several replicas agree on one that writes
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// Name of the Lease that they agree on; by default one for all replicas of the component
    #[arg(long, value_name = "NAME")]
    pub leader_election_id: Option<String>,

    /// Namespace of that Lease; the component's own by default
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,

    /// How long others wait before they take over
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_election_lease_duration: Duration,

    /// How long a leader leads without renewing
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_election_renew_deadline: Duration,

    /// How often it is tried
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_election_retry_period: Duration,
}

impl ElectionArgs {
    /// The elector, if there is an election, and who leads. `id` names the Lease where nobody else does.
    pub fn elect(
        &self,
        component: &'static str,
        id: &str,
        namespace: &str,
        environment: &Environment,
        virt: &Cluster<Virtual>,
        clock: &Clock,
    ) -> Result<(Option<Elector<Virtual>>, Leadership), ElectionError> {
        if !self.leader_elect {
            return Ok((None, Leadership::always()));
        }
        let identity =
            environment.get("POD_NAME").or_else(|| environment.get("HOSTNAME")).unwrap_or(component);
        let election = Election {
            lease_duration: self.leader_election_lease_duration,
            renew_deadline: self.leader_election_renew_deadline,
            retry_period: self.leader_election_retry_period,
            ..Election::new(
                self.leader_election_namespace.as_deref().unwrap_or(namespace),
                self.leader_election_id.as_deref().unwrap_or(id),
                Election::unique(identity),
            )
        };
        let applier = Applier::new(component).virtually(virt);
        let (elector, leadership) = Elector::new(virt, applier, election, clock)?;
        Ok((Some(elector), leadership))
    }
}

/// A flag that names a namespace. An empty one would mean all of them.
pub fn namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not the name of a namespace, such as kubeocean-system"))
    }
}

/// A flag that is a time, as Go writes them: `15s`, `1m30s`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err("a duration such as 15s or 1m30s".to_owned());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 =
            rest[..digits].parse().map_err(|_| format!("`{text}` is not a duration such as 15s"))?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit_end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return Err(format!("`{text}` is not a duration such as 15s: units are h, m, s, ms")),
        };
        rest = &rest[unit_end..];
        let part =
            Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("`{text}` is too long"))?;
        total = total.checked_add(part).ok_or_else(|| format!("`{text}` is too long"))?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (text, expected) in
            [("15s", 15_000), ("1m30s", 90_000), ("500ms", 500), ("1h", 3_600_000), ("1.5s", 1500)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "15", "s", "1x", "-1s", "99999999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
