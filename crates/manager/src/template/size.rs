//! How large a syncer and a proxier are.

use kubeocean_api::keys::annotations::SIZE_CLASSES;
use serde_json::{Value, json};

/// A size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeClass {
    /// Fewer than 100 nodes.
    #[default]
    Small,
    /// 100 to 1000 nodes.
    Medium,
    /// More than 1000 nodes.
    Large,
}

/// A worker cluster around a bound must not roll its syncer with every node that comes and goes: it has to be beyond the
/// bound by a tenth.
const MARGIN: usize = 10;

impl SizeClass {
    const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        SIZE_CLASSES[self as usize]
    }

    /// By its word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    fn of(nodes: usize) -> Self {
        match nodes {
            0..100 => Self::Small,
            100..=1000 => Self::Medium,
            _ => Self::Large,
        }
    }

    /// By hand, or else by the number of nodes; what it is stays until the number is clearly another.
    pub fn choose(by_hand: Option<&str>, nodes: Option<usize>, now: Option<Self>) -> Self {
        if let Some(class) = by_hand.and_then(Self::parse) {
            return class;
        }
        match (nodes, now) {
            (None, now) => now.unwrap_or_default(),
            (Some(nodes), None) => Self::of(nodes),
            (Some(nodes), Some(now)) => {
                let margin = nodes.div_ceil(MARGIN);
                let range = Self::of(nodes.saturating_sub(margin))..=Self::of(nodes.saturating_add(margin));
                if range.contains(&now) { now } else { Self::of(nodes) }
            }
        }
    }

    /// What a container of this size asks for.
    pub fn resources(self) -> Value {
        let (cpu, memory, most_cpu, most_memory) = match self {
            Self::Small => ("100m", "128Mi", "500m", "512Mi"),
            Self::Medium => ("200m", "256Mi", "1", "1Gi"),
            Self::Large => ("500m", "512Mi", "2", "2Gi"),
        };
        json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": most_cpu, "memory": most_memory}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_asks_for_what_the_documentation_says() {
        let of = |class: SizeClass| {
            let asked = class.resources();
            let words = |kind: &str| {
                let word = |what: &str| asked[kind][what].as_str().unwrap_or_default().to_owned();
                format!("{}/{}", word("cpu"), word("memory"))
            };
            [words("requests"), words("limits")]
        };
        assert_eq!(of(SizeClass::Small), ["100m/128Mi", "500m/512Mi"]);
        assert_eq!(of(SizeClass::Medium), ["200m/256Mi", "1/1Gi"]);
        assert_eq!(of(SizeClass::Large), ["500m/512Mi", "2/2Gi"]);
    }

    #[test]
    fn the_size_follows_the_nodes_but_does_not_flap() {
        use SizeClass::{Large, Medium, Small};
        for (nodes, class) in [(0, Small), (99, Small), (100, Medium), (1000, Medium), (1001, Large)] {
            assert_eq!(SizeClass::choose(None, Some(nodes), None), class, "{nodes}");
        }
        assert_eq!(SizeClass::choose(None, Some(101), Some(Small)), Small, "not for two nodes");
        assert_eq!(
            SizeClass::choose(None, Some(usize::MAX), Some(Small)),
            Large,
            "a lender may say any number"
        );
        assert_eq!(SizeClass::choose(None, Some(95), Some(Medium)), Medium);
        assert_eq!(SizeClass::choose(None, Some(120), Some(Small)), Medium);
        assert_eq!(SizeClass::choose(None, Some(80), Some(Medium)), Small);
        assert_eq!(SizeClass::choose(None, None, Some(Large)), Large, "nobody knows: it stays");
        assert_eq!(SizeClass::choose(Some("large"), Some(3), Some(Small)), Large, "by hand");
        assert_eq!(SizeClass::choose(Some("huge"), Some(3), None), Small, "no such size");
    }
}
