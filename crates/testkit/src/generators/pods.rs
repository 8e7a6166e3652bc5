//! Pods with everything that a pod can have.

use serde_json::{Map, Value, json};

use super::{LONGEST_LABEL, LONGEST_NAME, Nasty};

impl Nasty {
    /// A pod in a namespace, with many containers, volumes of any kind, and references that lead nowhere.
    pub fn pod(&mut self, namespace: &str) -> Value {
        let name = self.name();
        let meta = self.metadata(&name, Some(namespace));
        let volumes = self.volumes(name.len());
        let count = self.one_of(&[1, 2, 20]);
        let containers: Vec<Value> =
            (0..count).map(|at| self.container(&format!("c{at}"), &volumes)).collect();
        let mut spec = json!({"containers": containers, "volumes": volumes});
        let init: Vec<Value> = (0..self.below(4))
            .map(|at| {
                let mut container = self.container(&format!("i{at}"), &volumes);
                if self.coin() {
                    container["restartPolicy"] = "Always".into();
                } else if let Some(container) = container.as_object_mut() {
                    // Only sidecars may be probed.
                    for field in ["livenessProbe", "readinessProbe", "lifecycle"] {
                        container.remove(field);
                    }
                }
                container
            })
            .collect();
        if !init.is_empty() {
            spec["initContainers"] = init.into();
        }
        self.scheduling(&mut spec);
        self.networking(&mut spec);
        let lists = ["containers", "initContainers"];
        let no_time = spec["terminationGracePeriodSeconds"] == 0;
        for list in lists.iter().filter(|_| no_time) {
            // Who is killed at once cannot sleep before.
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                drop(container.as_object_mut().and_then(|container| container.remove("lifecycle")));
            }
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    }

    /// An ephemeral container, as the subresource takes it.
    pub fn ephemeral_container(&mut self) -> Value {
        json!({"name": format!("e-{}", self.label_name(20)), "image": "busybox", "stdin": true, "tty": self.coin()})
    }

    fn container(&mut self, name: &str, volumes: &[Value]) -> Value {
        let (cpu, memory) = (self.cpu(), self.memory());
        let by_digest = format!("registry.example:5000/a/b@sha256:{:064}", 0);
        let mut container = json!({
            "name": name, "image": if self.coin() { "busybox".to_owned() } else { by_digest }, "env": self.environment(),
        });
        match self.below(3) {
            0 => {}
            1 => {
                let both = json!({"cpu": cpu, "memory": memory});
                container["resources"] = json!({"requests": both, "limits": both});
            }
            _ => container["resources"] = json!({"limits": {"memory": memory, "nvidia.com/gpu": "2"}}),
        }
        if self.below(3) == 0 {
            let from = json!([
                {"configMapRef": {"name": self.short_name(), "optional": true}}, {"prefix": "P_", "secretRef": {"name": self.short_name()}},
            ]);
            container["envFrom"] = from;
        }
        if self.below(3) == 0 {
            container["livenessProbe"] = json!({"httpGet": {"path": "/", "port": "web"}});
            container["readinessProbe"] = json!({"exec": {"command": ["sh", "-c", "true \"$(X)\""]}});
            container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
        }
        if !volumes.is_empty() && self.coin() {
            let volume = &volumes[self.below(volumes.len())]["name"];
            container["volumeMounts"] = json!([
                {"name": volume, "mountPath": "/a", "readOnly": true},
                {"name": volume, "mountPath": "/b", "subPath": "c/d"},
            ]);
        }
        container
    }

    fn environment(&mut self) -> Vec<Value> {
        let mut all = vec![
            json!({"name": "PLAIN", "value": "$(OTHER) $$(ESCAPED) \n\""}),
            json!({"name": "EMPTY"}),
            json!({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
            json!({"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a.b/c']"}}}),
            json!({"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}),
            json!({"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": self.name(), "key": "k.e-y_", "optional": self.coin()}}}),
            json!({"name": "CONFIG", "valueFrom": {"configMapKeyRef": {"name": self.name(), "key": "k"}}}),
        ];
        all.truncate(self.below(8));
        all
    }

    /// For a pod whose name is so long.
    fn volumes(&mut self, pod: usize) -> Vec<Value> {
        let (claim, secret, config) = (self.name(), self.name(), self.name());
        let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "somewhere"}});
        let downward = json!({"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}});
        let sources = [
            json!({"emptyDir": {}}),
            json!({"emptyDir": {"medium": "Memory", "sizeLimit": self.memory()}}),
            json!({"hostPath": {"path": "/", "type": "Directory"}}),
            json!({"secret": {"secretName": secret, "optional": true, "defaultMode": 256}}),
            json!({"configMap": {"name": config, "items": [{"key": "a", "path": "b/c"}]}}),
            json!({"persistentVolumeClaim": {"claimName": claim, "readOnly": true}}),
            json!({"projected": {"sources": [token, downward, {"secret": {"name": secret}}, {"configMap": {"name": config}}]}}),
            json!({"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}),
            json!({"csi": {"driver": "csi.example", "volumeAttributes": {"a": ""}}}),
            json!({"nfs": {"server": "nfs.example", "path": "/x"}}),
            json!({"image": {"reference": "registry.example/data:1", "pullPolicy": "IfNotPresent"}}),
        ];
        let count = self.one_of(&[0, 2, 6]);
        (0..count)
            .map(|at| {
                let mut volume: Map<String, Value> =
                    sources[self.below(sources.len())].as_object().cloned().unwrap_or_default();
                // A claim is called after the pod and the volume.
                if volume.contains_key("ephemeral") && pod + 1 + LONGEST_LABEL > LONGEST_NAME {
                    volume = Map::from_iter([("emptyDir".to_owned(), json!({}))]);
                }
                let length = LONGEST_LABEL - 2;
                volume.insert("name".to_owned(), format!("{}{at:02}", self.label_name(length)).into());
                volume.into()
            })
            .collect()
    }

    fn scheduling(&mut self, spec: &mut Value) {
        if self.coin() {
            spec["nodeSelector"] = json!({"a.example/b": self.short_name(), "empty": ""});
        }
        if self.coin() {
            spec["tolerations"] = json!([
                {"operator": "Exists"},
                {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 0},
            ]);
        }
        if self.coin() {
            let length = self.one_of(&[1, LONGEST_LABEL]);
            spec["nodeName"] = self.label_name(length).into();
        }
        spec["terminationGracePeriodSeconds"] = self.one_of(&[0, 1, 30, 86_400]).into();
        spec["restartPolicy"] = self.one_of(&["Always", "OnFailure", "Never"]).into();
    }

    fn networking(&mut self, spec: &mut Value) {
        match self.below(4) {
            0 => {
                spec["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["a", "b.c"]}]);
                spec["dnsPolicy"] = "None".into();
                spec["dnsConfig"] =
                    json!({"nameservers": ["10.0.0.2"], "searches": ["a.b"], "options": [{"name": "ndots"}]});
            }
            1 => {
                spec["hostname"] = self.label_name(LONGEST_LABEL).into();
                spec["subdomain"] = self.short_name().into();
            }
            2 => spec["automountServiceAccountToken"] = false.into(),
            _ => {}
        }
    }
}
