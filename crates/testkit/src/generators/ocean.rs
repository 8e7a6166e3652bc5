//! Bindings and policies.

use serde_json::{Value, json};

use super::{LONGEST_LABEL, Nasty};

const ZONES: &[&str] =
    &["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia", "Africa/Casablanca"];
const DAYS: &[&str] = &["Mon", "tuesday", "WED", "thu", "Friday", "sAt", "sunday"];
const RESOURCES: &[&str] = &["cpu", "memory", "pods", "storage", "nvidia.com/gpu", "example.com/a-b_c.d"];

impl Nasty {
    /// A binding whose every field is at some limit.
    pub fn binding(&mut self) -> Value {
        let name = self.short_name();
        let id_length = self.one_of(&[1, 24]);
        let mut spec = json!({
            "clusterID": self.label_name(id_length),
            "secretRef": {"name": self.name(), "namespace": self.short_name()},
            "mountNamespace": self.label_name(LONGEST_LABEL),
            "disableNodeDefaultTaint": self.coin(),
            "runningDaemonsetByDefault": self.coin(),
            "directScheduling": self.coin(),
        });
        if self.coin() {
            let namespaces: Vec<Value> = (0..self.below(30)).map(|_| self.short_name().into()).collect();
            spec["serviceNamespaces"] = if self.coin() { json!(["*"]) } else { namespaces.into() };
        }
        if self.coin() {
            spec["podPriorityClassName"] = self.name().into();
        }
        if self.coin() {
            spec["nodeSelector"] = self.node_selector();
        }
        json!({
            "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding",
            "metadata": {"name": name, "labels": self.labels(), "annotations": self.annotations()}, "spec": spec,
        })
    }

    /// A policy for a binding: windows over midnight, odd zones, caps in odd quantities.
    pub fn policy(&mut self, binding: &str) -> Value {
        let name = self.short_name();
        let windows: Vec<Value> = (0..self.below(5)).map(|_| self.window()).collect();
        let count = self.below(RESOURCES.len());
        let limits: Vec<Value> = RESOURCES[..count].iter().map(|resource| self.limit(resource)).collect();
        let grace = self.one_of(&[0, 1, 300, i64::MAX]);
        let mut spec = json!({
            "cluster": binding, "timeWindows": windows, "resourceLimits": limits, "forceReclaim": self.coin(),
            "gracefulReclaimPeriodSeconds": grace,
        });
        if self.coin() {
            spec["timeZone"] = self.one_of(ZONES).into();
        }
        if self.coin() {
            spec["nodeSelector"] = self.node_selector();
        }
        json!({
            "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ResourceLeasingPolicy",
            "metadata": {"name": name, "labels": self.labels()}, "spec": spec,
        })
    }

    fn window(&mut self) -> Value {
        let (start, end) = self.one_of(&[
            ("00:00", "24:00"),
            ("22:00", "06:00"),
            ("23:59", "00:00"),
            ("02:30", "02:31"),
            ("00:00", "00:01"),
        ]);
        let days: Vec<Value> = (0..self.below(8)).map(|_| self.one_of(DAYS).into()).collect();
        json!({"start": start, "end": end, "days": days})
    }

    fn limit(&mut self, resource: &str) -> Value {
        match self.below(3) {
            0 => json!({"resource": resource, "quantity": self.memory()}),
            1 => json!({"resource": resource, "percent": self.one_of(&[0, 1, 99, 100])}),
            _ => json!({"resource": resource, "quantity": self.below(100), "percent": self.below(101)}),
        }
    }

    fn node_selector(&mut self) -> Value {
        let expression = match self.below(4) {
            0 => json!({"key": "zone", "operator": "In", "values": ["a", "b"]}),
            1 => json!({"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}),
            2 => json!({"key": "cores", "operator": "Gt", "values": ["-1"]}),
            _ => json!({"key": self.short_name(), "operator": "NotIn", "values": [""]}),
        };
        json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]})
    }
}
