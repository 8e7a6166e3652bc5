//! What is asked: requests with short paths, and words that stand for what only a server knows.
//!
//! A path is `plural[/name[/subresource]][?query]`; the script's own namespace is filled in. In paths and
//! bodies, `{ns}` is that namespace, `{uid:plural/name}` and `{rv:plural/name}` are of the object as last
//! seen, `{mark}` is the revision at the last mark, `{continue}` the token of the last page.

use serde_json::Value;

/// See the macro `json`.
#[inline(never)]
pub(crate) fn made(make: impl FnOnce() -> Value) -> Value {
    make()
}

pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

pub(crate) fn script(name: &'static str, steps: Vec<Step>) -> Script {
    Script { name, steps }
}

pub(crate) struct Step {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) body: Option<Value>,
    pub(crate) how: How,
    /// Under which short path its answer is remembered, if not under its own.
    pub(crate) called: Option<&'static str>,
}

/// What is done with the answer.
#[derive(PartialEq, Eq, Clone, Copy)]
pub(crate) enum How {
    /// It is compared.
    Once,
    /// It is asked again until it has this code: something else has to notice first.
    Until(u16),
    /// It is asked again until there is something at this pointer.
    UntilItHas(&'static str),
    /// It is asked again until this text is at this pointer.
    UntilItSays(&'static str, &'static str),
    /// It is asked again until there is nothing at this pointer.
    UntilItLacks(&'static str),
    /// Of what a real server lists, only what both have by name is compared.
    Among,
    /// Only its code is compared, once it is this one: a real server takes steps on the way.
    Code(u16),
    /// Only its code is compared: of several faults, each server tells another one first.
    Verdict,
    /// The events of a watch are compared.
    Watch,
    /// The revision is remembered.
    Mark,
    /// Old revisions are given up: here at once, on a real server when it gets to it.
    Compact,
}

impl Step {
    pub(crate) fn title(&self) -> String {
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        format!("{} {} {}", self.method, self.path, body.chars().take(160).collect::<String>())
    }

    pub(crate) fn until(mut self, code: u16) -> Self {
        self.how = How::Until(code);
        self
    }

    pub(crate) fn until_it_has(mut self, pointer: &'static str) -> Self {
        self.how = How::UntilItHas(pointer);
        self
    }

    pub(crate) fn until_it_says(mut self, pointer: &'static str, text: &'static str) -> Self {
        self.how = How::UntilItSays(pointer, text);
        self
    }

    pub(crate) fn until_it_lacks(mut self, pointer: &'static str) -> Self {
        self.how = How::UntilItLacks(pointer);
        self
    }

    pub(crate) fn among(mut self) -> Self {
        self.how = How::Among;
        self
    }

    pub(crate) fn code_only(mut self, code: u16) -> Self {
        self.how = How::Code(code);
        self
    }

    pub(crate) fn verdict_only(mut self) -> Self {
        self.how = How::Verdict;
        self
    }

    pub(crate) fn called(mut self, path: &'static str) -> Self {
        self.called = Some(path);
        self
    }

    pub(crate) fn sent_as(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }
}

fn step(method: &'static str, path: &str, content_type: &'static str, body: Option<Value>) -> Step {
    Step {
        method,
        path: path.to_owned(),
        content_type,
        accept: "application/json",
        body,
        how: How::Once,
        called: None,
    }
}

pub(crate) fn get(path: &str) -> Step {
    step("GET", path, "", None)
}

pub(crate) fn post(path: &str, body: Value) -> Step {
    step("POST", path, "application/json", Some(body))
}

pub(crate) fn put(path: &str, body: Value) -> Step {
    step("PUT", path, "application/json", Some(body))
}

pub(crate) fn merge(path: &str, body: Value) -> Step {
    step("PATCH", path, "application/merge-patch+json", Some(body))
}

pub(crate) fn json_patch(path: &str, body: Value) -> Step {
    step("PATCH", path, "application/json-patch+json", Some(body))
}

pub(crate) fn strategic(path: &str, body: Value) -> Step {
    step("PATCH", path, "application/strategic-merge-patch+json", Some(body))
}

/// `path` may carry a query after the manager's.
pub(crate) fn apply(path: &str, manager: &str, body: Value) -> Step {
    let (path, more) = path.split_once('?').unwrap_or((path, ""));
    step(
        "PATCH",
        &format!("{path}?fieldManager={manager}&{more}"),
        "application/apply-patch+yaml",
        Some(body),
    )
}

pub(crate) fn delete(path: &str) -> Step {
    step("DELETE", path, "", None)
}

pub(crate) fn delete_with(path: &str, options: Value) -> Step {
    step("DELETE", path, "application/json", Some(options))
}

/// A watch that ends by itself after a second.
pub(crate) fn watch(path: &str) -> Step {
    let sign = if path.contains('?') { '&' } else { '?' };
    let mut step = get(&format!("{path}{sign}watch=true&timeoutSeconds=1"));
    step.how = How::Watch;
    step
}

/// Remembers the revision.
pub(crate) fn mark() -> Step {
    let mut step = get("configmaps");
    step.how = How::Mark;
    step
}

/// Gives up old revisions.
pub(crate) fn compact() -> Step {
    let mut step = get("configmaps");
    step.how = How::Compact;
    step
}

/// A pod with one container, its spec changed by adding fields.
pub(crate) fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "x:1"}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

pub(crate) fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}
