//! `ResourceLeasingPolicy`: which nodes may be leased, how much of them, and when.
//!
//! Deliberately absent: the lease clock and the arithmetic of offers. Times, days and quantities are
//! kept as they were written; whoever acts on them parses them once.

#![expect(unreachable_pub, reason = "KubeSchema repeats each struct inside a function, `pub` and all")]

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::schema;

/// What may be leased through one binding.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cloud.tencent.com",
    version = "v1beta1",
    kind = "ResourceLeasingPolicy",
    plural = "resourceleasingpolicies",
    shortname = "rlp",
    category = "kubeocean",
    status = "ResourceLeasingPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A ResourceLeasingPolicy says which nodes may be leased through a ClusterBinding, how much of them, and when. In the worker cluster it is the lender's word, in the computing cluster the borrower's.",
    validation = schema::rule(
        "self.metadata.name.size() <= 63",
        "metadata.name must be at most 63 characters: choose a shorter name"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Active", type_ = "boolean", json_path = ".status.activeTimeWindow"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tidy)]
pub struct ResourceLeasingPolicySpec {
    /// Name of the `ClusterBinding` that this policy is about.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = schema::rule(
        schema::self_matches!(schema::dns_subdomain!()),
        "cluster must be the name of a ClusterBinding: lower-case letters, digits, '-' and '.', starting and ending \
         with a letter or digit"
    ))]
    pub cluster: String,

    /// Which nodes this policy is about, among those that the `ClusterBinding` selects. Missing or
    /// empty: all of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: Option<NodeSelector>,

    /// When the nodes may be used. Missing or empty: always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub time_windows: Vec<TimeWindow>,

    /// The time zone of the windows, by its IANA name, for example `Europe/Berlin`. Missing: the zone
    /// that the component runs in (its `TZ`), else UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time_zone")]
    pub time_zone: Option<String>,

    /// Caps on what is offered, one per resource. A resource without a cap is offered whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["resource".into()]))]
    pub resource_limits: Vec<ResourceLimit>,

    /// What happens to pods when no window is open. True: they are removed. False: they stay, and
    /// nothing new is scheduled. Default: false.
    #[serde(default)]
    pub force_reclaim: bool,

    /// With `forceReclaim`: seconds between the end of a window and the removal of pods. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub graceful_reclaim_period_seconds: i64,
}

/// A time of day, on some days of the week. The window belongs to the day on which it starts: `22:00`
/// to `06:00` on `Fri` is open from Friday evening to Saturday morning.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tidy)]
#[x_kube(validation = schema::rule(
    "self.start != self.end",
    "start and end must differ: for a whole day write start '00:00' and end '24:00'"
))]
pub struct TimeWindow {
    /// When the window opens, `HH:MM`, from `00:00` to `23:59`.
    #[schemars(length(max = 16))]
    #[x_kube(validation = schema::rule(
        "self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",
        "start must be a time of day HH:MM from 00:00 to 23:59, for example '08:30'"
    ))]
    pub start: String,

    /// When the window closes, `HH:MM`, from `00:00` to `24:00`. The minute itself is included, except
    /// `24:00`, which is midnight. An end before the start is on the next day.
    #[schemars(length(max = 16))]
    #[x_kube(validation = schema::rule(
        "self.matches('^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$')",
        "end must be a time of day HH:MM from 00:00 to 24:00, for example '18:00'"
    ))]
    pub end: String,

    /// Days on which the window opens: English names, in full or their first three letters, in any case.
    /// Example: `[Mon, tuesday, WED]`. Missing or empty: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "days")]
    pub days: Vec<String>,
}

/// A cap on one resource of a node. With both `quantity` and `percent` the smaller one counts.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tidy)]
#[x_kube(validation = schema::rule(
    "has(self.quantity) || has(self.percent)",
    "resourceLimits entries need quantity or percent: set at least one of them"
))]
pub struct ResourceLimit {
    /// The resource, for example `cpu`, `memory`, `pods` or `nvidia.com/gpu`. `storage` is another name
    /// of `ephemeral-storage`.
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(validation = schema::rule(
        schema::self_matches!(schema::qualified_name!()),
        "resource must be a resource name: letters, digits, '-', '_' and '.', at most 63 characters, after an \
         optional DNS prefix and '/'; for example 'cpu' or 'nvidia.com/gpu'"
    ))]
    pub resource: String,

    /// At most this much of the resource, for example `4`, `500m` or `16Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub quantity: Option<Quantity>,

    /// At most this part, from 0 to 100, of what is left of the resource on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<i32>,
}

/// What is true of the policy now. Everything is optional: several writers apply their own fields.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tidy)]
pub struct ResourceLeasingPolicyStatus {
    /// The state in one word: Pending before it was looked at, Active while a window is open,
    /// Inactive while none is, Failed when the policy is invalid and leases nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PolicyPhase>,

    /// What is true now, by type: Valid, Active, Shadowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// When the policy was last applied to nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_applied_time: Option<Time>,

    /// Whether a window is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_time_window: Option<bool>,

    /// The `metadata.generation` that this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// When a window opens or closes next. Missing: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub next_transition_time: Option<Time>,

    /// Who reads this policy: several borrowers may read one policy of a worker cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["bindingUID".into()]))]
    pub bindings: Vec<BindingUse>,
}

/// What one `ClusterBinding` makes of the policy.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tidy)]
pub struct BindingUse {
    /// The uid of the `ClusterBinding`.
    #[serde(rename = "bindingUID")]
    #[schemars(length(min = 1, max = 128))]
    pub binding_uid: String,

    /// How many nodes it leases under this policy.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub nodes: i32,

    /// Whether it takes a window to be open.
    #[serde(default)]
    pub active: bool,
}

/// The state of a policy in one word.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyPhase {
    /// Not looked at yet.
    #[default]
    Pending,
    /// A window is open.
    Active,
    /// No window is open.
    Inactive,
    /// Invalid: leases nothing.
    Failed,
}

/// Seven days, each by both names and more than once: still a harmless list.
const DAYS: u32 = 32;
/// The longest quantity that a number of any node needs has a third of this.
const QUANTITY_LENGTH: u32 = 64;
/// The longest IANA name has 32 characters.
const TIME_ZONE_LENGTH: u32 = 64;

fn days(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": DAYS,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "string",
            "maxLength": 16,
            "x-kubernetes-validations": [schema::rule(
                "self.lowerAscii() in ['mon', 'monday', 'tue', 'tuesday', 'wed', 'wednesday', 'thu', 'thursday', \
                 'fri', 'friday', 'sat', 'saturday', 'sun', 'sunday']",
                "days must be English names of days, in full or their first three letters; for example 'Mon' or \
                 'monday'",
            )],
        },
    })
}

/// The API server knows the time zones but has no function that asks for one. `getFullYear` takes a
/// zone and fails on an unknown one, and a rule that fails refuses the object. It also takes what we do
/// not: offsets, the empty string (UTC), the server's own zone and copies of the database under other
/// names; the rule before it refuses those.
fn time_zone(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": TIME_ZONE_LENGTH,
        "x-kubernetes-validations": [
            schema::rule(
                "self.matches('^[A-Z][-+A-Za-z0-9_]*(/[A-Z][-+A-Za-z0-9_]*)*$') && self != 'Local'",
                "timeZone must be an IANA time zone name in its usual spelling, such as 'Europe/Berlin' or 'UTC': \
                 not empty, not an offset, not 'Local'",
            ),
            schema::rule(
                "!self.matches('^[A-Z][-+A-Za-z0-9_]*(/[A-Z][-+A-Za-z0-9_]*)*$') || self == 'Local' \
                 || timestamp('2026-01-01T00:00:00Z').getFullYear(self) > 0",
                "timeZone must be an IANA time zone name that the API server knows, such as 'Europe/Berlin' or \
                 'UTC'",
            ),
        ],
    })
}

fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        // Said aloud, because an optional int-or-string would be made nullable otherwise.
        "nullable": false,
        "maxLength": QUANTITY_LENGTH,
        "x-kubernetes-validations": [schema::rule(
            "type(self) == string ? isQuantity(self) && quantity(self).compareTo(quantity('0')) >= 0 : self >= 0",
            "quantity must be a Kubernetes quantity of zero or more; for example 4, '500m' or '16Gi'",
        )],
    })
}

#[cfg(test)]
mod tests;
