//! Which versions of Kubernetes go together.

use super::checks::Judgement;

/// The rules of our definitions ask for quantities, which API servers understand from this minor on. An older one refuses
/// the definitions, in either cluster.
const OLDEST: i64 = 29;

/// The fences around our own identities are `ValidatingAdmissionPolicies`, which are there from this minor on.
const FENCED: i64 = 30;

/// Kubelets may be so many minor versions older than their API server; a virtual node looks like one.
const OLDER_BY: i64 = 3;

/// Of the computing cluster. `says`: what is good about it.
pub(super) fn computing(version: &str, says: &str) -> Judgement {
    match minor(version) {
        Some(minor) if minor < OLDEST => too_old(says),
        Some(minor) if minor < FENCED => Judgement::Worth(format!(
            "{says}: config/admission needs 1.{FENCED}; without it nothing but RBAC holds syncers, see docs/rights.md"
        )),
        _ => Judgement::Good(says.to_owned()),
    }
}

/// Of the worker cluster, beside that of the computing cluster where it is known.
pub(super) fn worker(version: &str, computing: Option<&str>, says: &str) -> Judgement {
    let Some(theirs) = minor(version) else { return Judgement::Good(says.to_owned()) };
    if theirs < OLDEST {
        return too_old(says);
    }
    let Some(ours) = computing.and_then(minor) else { return Judgement::Good(says.to_owned()) };
    match ours - theirs {
        0 => Judgement::Good(says.to_owned()),
        older @ 1..=OLDER_BY => {
            Judgement::Good(format!("{says}: {older} minor older than the computing cluster, which is fine"))
        }
        older if older > OLDER_BY => Judgement::Worth(format!(
            "{says}: {older} minors older than the computing cluster; newer fields of pods are lost there"
        )),
        newer => Judgement::Worth(format!(
            "{says}: {} minor newer than the computing cluster, as no node should be",
            -newer
        )),
    }
}

fn too_old(says: &str) -> Judgement {
    Judgement::Wrong(format!(
        "{says}, which is too old for our definitions: upgrade it to 1.{OLDEST} or later"
    ))
}

/// `36` of `v1.36.4`.
fn minor(version: &str) -> Option<i64> {
    let mut parts = version.trim_start_matches('v').split('.');
    parts.next().filter(|major| *major == "1")?;
    let minor = parts.next()?;
    // Some say `30+`.
    minor.trim_end_matches(|odd: char| !odd.is_ascii_digit()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_together_or_are_told_apart() {
        // The worker's, the computing cluster's, the mark, and what is said.
        let cases = [
            ("v1.36.4", Some("v1.36.4"), '✓', "ok"),
            (
                "v1.33.5-gke.1080000",
                Some("v1.36.4"),
                '✓',
                "3 minor older than the computing cluster, which is fine",
            ),
            ("v1.32.0", Some("v1.36.4"), '!', "4 minors older"),
            ("v1.36.0", Some("v1.35.9"), '!', "1 minor newer than the computing cluster"),
            ("v1.29.0", Some("v1.30.0"), '✓', "1 minor older"),
            ("v1.28.15", Some("v1.30.0"), '✗', "upgrade it to 1.29 or later"),
            ("v1.28.15", None, '✗', "upgrade it to 1.29 or later"),
            ("1.30+", None, '✓', "ok"),
            // Who does not say is not judged.
            ("", Some("v1.36.4"), '✓', "ok"),
            ("v1.36.4", Some(""), '✓', "ok"),
            ("development", Some("v1.36.4"), '✓', "ok"),
        ];
        for (theirs, ours, mark, words) in cases {
            let judged = worker(theirs, ours, "ok");
            assert_eq!(judged.mark(), mark, "{theirs} beside {ours:?}: {judged:?}");
            assert!(judged.says().contains(words), "{theirs} beside {ours:?}: {judged:?}");
        }
        for (version, mark) in
            [("v1.28.9", '✗'), ("v1.29.9", '!'), ("v1.30.0", '✓'), ("v1.36.4", '✓'), ("", '✓')]
        {
            assert_eq!(computing(version, "ok").mark(), mark, "{version}");
        }
    }
}
