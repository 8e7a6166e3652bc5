//! Who may do what: everything, until a test denies something.
//!
//! Deliberately absent: reading roles. Rights are tested on real servers, with the rules that ship.

use std::collections::BTreeMap;

use super::Call;
use super::refusal::Refusal;
use crate::server::State;
use crate::status::{Failure, Result};

/// Something that may be done to objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    verb: String,
    group: String,
    resource: String,
    namespace: Option<String>,
}

impl Right {
    /// To do `verb` to `resource`, which may name its group and a subresource: `pods`, `pods/status`,
    /// `deployments.apps`, `deployments.apps/scale`. `*` stands for any verb, for any resource with all it
    /// has, and after a `/` for any subresource. Without a group, resources of that name in any group.
    ///
    /// Paths beside the API (`/metrics`) start with a slash.
    pub fn to(verb: &str, resource: &str) -> Self {
        let (group, resource) = match resource.split_once('.') {
            Some((plural, rest)) if !resource.starts_with('/') => match rest.split_once('/') {
                Some((group, subresource)) => (group, format!("{plural}/{subresource}")),
                None => (rest, plural.to_owned()),
            },
            _ => ("*", resource.to_owned()),
        };
        Self { verb: verb.to_owned(), group: group.to_owned(), resource, namespace: None }
    }

    pub(crate) fn of_group(verb: &str, group: &str, resource: &str) -> Self {
        let [verb, group, resource] = [verb, group, resource].map(str::to_owned);
        Self { verb, group, resource, namespace: None }
    }

    /// In this namespace only. Who lacks it there also lacks it for all namespaces together.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    fn covers(&self, asked: &Asked<'_>) -> bool {
        let matches = |rule: &str, asked: &str| rule == "*" || rule == asked;
        let resource = match (self.resource.as_str(), asked.resource.split_once('/')) {
            ("*", _) => true,
            (rule, Some((plural, _))) if rule.strip_suffix("/*") == Some(plural) => true,
            (rule, _) => rule == asked.resource,
        };
        let namespace = self.namespace.as_deref();
        resource
            && matches(&self.verb, asked.verb)
            && matches(&self.group, asked.group)
            && (asked.namespace.is_empty() || namespace.is_none_or(|namespace| namespace == asked.namespace))
    }
}

/// A question.
pub(crate) struct Asked<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    /// May carry a subresource: `pods/status`.
    pub(crate) resource: &'a str,
    /// Empty for all of them, and for what is in none.
    pub(crate) namespace: &'a str,
}

/// What is denied to whom, and who they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rights {
    denied: Vec<(String, Right)>,
    refused: Vec<(String, Right, Refusal)>,
    users: BTreeMap<String, String>,
}

impl Rights {
    pub(crate) fn new(denied: Vec<(String, Right)>) -> Self {
        Self { denied, ..Self::default() }
    }

    pub(crate) fn refuse(&mut self, actor: &str, right: Right, refusal: Refusal) {
        self.refused.push((actor.to_owned(), right, refusal));
    }

    pub(crate) fn accept(&mut self, actor: &str) {
        self.refused.retain(|(whom, ..)| whom != actor);
    }

    /// Why someone who may is refused all the same, if so.
    pub(crate) fn refusal(&self, who: &str, asked: &Asked<'_>) -> Option<Refusal> {
        let mut concerned = self.refused.iter().filter(|(whom, ..)| whom == "*" || whom == who);
        concerned.find(|(_, right, _)| right.covers(asked)).map(|(.., refusal)| *refusal)
    }

    pub(crate) fn deny(&mut self, actor: &str, right: Right) {
        self.denied.push((actor.to_owned(), right));
    }

    pub(crate) fn grant(&mut self, actor: &str, right: &Right) {
        self.denied.retain(|(whom, denied)| whom != actor || denied != right);
    }

    pub(crate) fn grant_all(&mut self) {
        self.denied.clear();
    }

    pub(crate) fn identify(&mut self, actor: &str, user: &str) {
        self.users.insert(actor.to_owned(), user.to_owned());
    }

    /// The user that an actor is: as it was said, or by its own name if that is one, or the usual one.
    pub(crate) fn user(&self, actor: &str, usual: &str) -> String {
        match self.users.get(actor) {
            Some(user) => user.clone(),
            None if actor.contains(':') => actor.to_owned(),
            None => usual.to_owned(),
        }
    }

    /// `who` is an actor or its user.
    pub(crate) fn allows(&self, who: &str, asked: &Asked<'_>) -> bool {
        let concerns =
            |whom: &str| whom == "*" || whom == who || self.users.get(whom).is_some_and(|user| user == who);
        !self.denied.iter().any(|(whom, right)| concerns(whom) && right.covers(asked))
    }

    /// Whether everything is allowed to someone.
    pub(crate) fn is_unlimited(&self, who: &str) -> bool {
        !self.denied.iter().any(|(whom, _)| whom == "*" || whom == who)
    }
}

/// The groups that a user is in by its name.
pub(crate) fn groups(user: &str) -> Vec<String> {
    let mut groups = Vec::new();
    if let Some((namespace, _)) =
        user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups.push("system:authenticated".to_owned());
    groups
}

/// Refuses what is denied, in the words of RBAC.
pub(crate) fn authorize(state: &State, call: &Call<'_>, verb: &str) -> Result<()> {
    let place = &call.place;
    let resource = if place.subresource.is_empty() {
        place.plural.clone()
    } else {
        format!("{}/{}", place.plural, place.subresource)
    };
    // A namespace is in itself.
    let namespace = if call.kind.is("Namespace") { &place.name } else { &place.namespace };
    if state.rights.allows(&call.actor, &Asked { verb, group: &place.group, resource: &resource, namespace })
    {
        return Ok(());
    }
    let whereabouts = if namespace.is_empty() {
        " at the cluster scope".to_owned()
    } else {
        format!(" in the namespace {namespace:?}")
    };
    let user = state.rights.user(&call.actor, &call.actor);
    let why = format!(
        "User {user:?} cannot {verb} resource {resource:?} in API group {:?}{whereabouts}",
        place.group
    );
    Err(Failure::forbidden(&call.kind, &place.name, &why))
}

#[cfg(test)]
mod tests {
    use super::{Asked, Right, Rights};

    #[test]
    fn what_is_denied_is_denied_and_nothing_else() {
        let may = |right: Right, asked: [&str; 4]| {
            let [verb, group, resource, namespace] = asked;
            let rights = Rights::new(vec![("me".to_owned(), right)]);
            rights.allows("me", &Asked { verb, group, resource, namespace })
        };
        assert!(!may(Right::to("get", "pods"), ["get", "", "pods", "a"]));
        assert!(may(Right::to("get", "pods"), ["list", "", "pods", "a"]));
        assert!(may(Right::to("get", "pods"), ["get", "", "pods/status", "a"]));
        assert!(!may(Right::to("*", "pods/*"), ["get", "", "pods/status", "a"]));
        assert!(may(Right::to("*", "pods/*"), ["get", "", "pods", "a"]));
        assert!(!may(Right::to("*", "*"), ["get", "", "pods/status", "a"]));
        assert!(!may(
            Right::to("patch", "deployments.apps/scale"),
            ["patch", "apps", "deployments/scale", ""]
        ));
        assert!(may(Right::to("patch", "deployments.apps"), ["patch", "other", "deployments", ""]));
        assert!(!may(Right::to("get", "pods").within("a"), ["get", "", "pods", "a"]));
        assert!(may(Right::to("get", "pods").within("a"), ["get", "", "pods", "b"]));
        // All namespaces have that one among them.
        assert!(!may(Right::to("get", "pods").within("a"), ["get", "", "pods", ""]));
        assert!(!may(Right::to("get", "/metrics"), ["get", "", "/metrics", ""]));
    }

    #[test]
    fn a_right_is_known_by_actor_and_by_user() {
        let mut rights = Rights::default();
        rights.identify("worker", "system:serviceaccount:a:b");
        rights.deny("worker", Right::to("get", "pods"));
        let asked = Asked { verb: "get", group: "", resource: "pods", namespace: "" };
        assert!(!rights.allows("worker", &asked));
        assert!(!rights.allows("system:serviceaccount:a:b", &asked));
        assert!(rights.allows("system:serviceaccount:a:c", &asked));
        rights.grant("worker", &Right::to("get", "pods"));
        assert!(rights.allows("worker", &asked));
    }
}
