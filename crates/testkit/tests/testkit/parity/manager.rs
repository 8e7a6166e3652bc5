//! What a manager does: it applies children, heals them, shares a status with others, and removes all of it.

use serde_json::Value;

use super::script::{Script, Step, apply, config, delete, delete_with, get, merge, post, put, script, strategic};

const BINDING: &str = "clusterbindings/{ns}";
const STATUS: &str = "clusterbindings/{ns}/status";

fn binding() -> Value {
    json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}"},
        "spec": {"clusterID": "w1", "secretRef": {"name": "w1", "namespace": "k"}, "mountNamespace": "b"},
    })
}

fn status(status: Value) -> Value {
    json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}"}, "status": status})
}

fn condition(type_: &str, value: &str) -> Value {
    json!({"type": type_, "status": value, "reason": "Because", "message": "", "lastTransitionTime": "2001-01-02T03:04:05Z"})
}

/// The same three times: made, looked at, and made again after someone else changed it.
fn thrice(path: &str, object: &Value, spoil: Value) -> Vec<Step> {
    vec![
        apply(path, "manager", object.clone()),
        apply(path, "manager", object.clone()),
        merge(path, spoil),
        apply(path, "manager", object.clone()),
        apply(&format!("{path}?force=true"), "manager", object.clone()),
        apply(&format!("{path}?force=true"), "manager", object.clone()),
        get(path),
        post(path.split('/').next().unwrap_or_default(), object.clone()),
        put(path, object.clone()),
        put(path, object.clone()),
    ]
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"app": "syncer"}, "annotations": {"kubeocean.io/template-hash": "0"},
        "ownerReferences": [{"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "name": "b", "uid": "u", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "syncer"}}, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": "syncer"}, "annotations": {"prometheus.io/scrape": "true"}}, "spec": {
                "serviceAccountName": "syncer", "automountServiceAccountToken": true, "priorityClassName": "system-cluster-critical", "terminationGracePeriodSeconds": 20,
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]}]}]}},
                    "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "syncer"}}}}]}},
                "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "syncer"}}}],
                "containers": [{"name": "syncer", "image": "kubeocean:v1", "imagePullPolicy": "IfNotPresent", "args": ["syncer", "--binding=b"],
                    "ports": [{"name": "metrics", "containerPort": 8080, "protocol": "TCP"}, {"name": "health", "containerPort": 8081}],
                    "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"name": "A", "value": "1"}, {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                    "envFrom": [{"configMapRef": {"name": "c", "optional": true}}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
                    "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "initialDelaySeconds": 15}, "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}},
                    "startupProbe": {"tcpSocket": {"port": 8081}},
                    "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "kubeconfig", "mountPath": "/etc/kubeconfig", "readOnly": true}, {"name": "tmp", "mountPath": "/tmp"}, {"name": "template", "mountPath": "/etc/template"}]}],
                "initContainers": [{"name": "wait", "image": "kubeocean:v1", "command": ["true"]}],
                "volumes": [{"name": "kubeconfig", "secret": {"secretName": "w1", "items": [{"key": "kubeconfig", "path": "kubeconfig"}]}}, {"name": "tmp", "emptyDir": {"sizeLimit": "10Mi"}}, {"name": "template", "configMap": {"name": "t"}}]}}}})
}

fn autoscaler(spec: Value) -> Value {
    let mut scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "minReplicas": 2, "maxReplicas": 5}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        scaler["spec"][key] = value.clone();
    }
    scaler
}

fn service(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"a": "b"}}, "spec": spec})
}

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.{ns}.io"}, "spec": {
        "group": "{ns}.io", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things", "shortNames": ["th"], "categories": ["all"]},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 1}}},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}}}]}})
}

pub(crate) fn scripts() -> Vec<Script> {
    vec![
        script("two managers of one status", vec![
            apply(STATUS, "manager", status(json!({"phase": "Pending"}))),
            post("clusterbindings", binding()),
            apply(STATUS, "manager", status(json!({"phase": "Pending", "observedGeneration": 1, "conditions": [condition("Ready", "False"), condition("Connected", "True")]}))),
            apply(STATUS, "syncer", status(json!({"nodes": 3, "pods": 4, "conditions": [condition("SyncerReady", "True"), condition("Leasing", "True")]}))),
            apply(STATUS, "manager", status(json!({"phase": "Pending", "observedGeneration": 1, "conditions": [condition("Ready", "False"), condition("Connected", "True")]}))),
            apply(STATUS, "syncer", status(json!({"nodes": 3, "pods": 4, "conditions": [condition("SyncerReady", "True"), condition("Leasing", "True")]}))),
            apply(STATUS, "syncer", status(json!({"nodes": 3, "pods": 4, "conditions": [condition("Leasing", "True"), condition("SyncerReady", "True")]}))),
            apply(STATUS, "manager", status(json!({"phase": "Ready", "observedGeneration": 1, "conditions": [condition("Ready", "True"), condition("Connected", "True")]}))),
            apply(STATUS, "syncer", status(json!({"nodes": 3, "conditions": [condition("SyncerReady", "False")]}))),
            apply(STATUS, "syncer", status(json!({"nodes": 3, "conditions": [condition("SyncerReady", "False"), condition("Ready", "False")]}))),
            apply(STATUS, "syncer", status(json!({"nodes": 3, "conditions": [condition("SyncerReady", "False"), condition("Connected", "True")]}))),
            apply(STATUS, "manager", status(json!({"phase": "Ready", "conditions": [condition("Ready", "True")]}))),
            apply(&format!("{STATUS}?force=true"), "syncer", status(json!({"nodes": 3, "conditions": [condition("SyncerReady", "False"), condition("Ready", "False")]}))),
            apply(STATUS, "manager", status(json!({"phase": "Ready", "conditions": [condition("Ready", "True")]}))),
            apply(STATUS, "syncer", status(json!({}))),
            apply(STATUS, "manager", status(json!({"phase": "Ready", "conditions": [condition("Ready", "True")]}))),
            apply(STATUS, "manager", json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}", "uid": "00000000-0000-0000-0000-000000000000"}, "status": {"phase": "Failed"}})),
            apply(STATUS, "manager", json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}", "uid": "{uid:clusterbindings/{ns}}", "resourceVersion": "1"}, "status": {"phase": "Failed"}})),
            apply(STATUS, "manager", json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}", "uid": "{uid:clusterbindings/{ns}}", "resourceVersion": "{rv:clusterbindings/{ns}}"}, "status": {"phase": "Failed"}})),
            apply(STATUS, "manager", json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "{ns}", "labels": {"a": "b"}}, "spec": {"clusterID": "w2"}, "status": {"phase": "Failed"}})),
            apply(STATUS, "manager", status(json!({"phase": "Sleeping"}))),
            apply(STATUS, "manager", status(json!({"conditions": [{"type": "Ready", "status": "True"}]}))),
            apply(STATUS, "manager", status(json!({"conditions": [condition("Ready", "True"), condition("Ready", "False")]}))),
            apply(STATUS, "manager", status(json!({"conditions": [{"status": "True", "reason": "R", "message": "", "lastTransitionTime": "2001-01-02T03:04:05Z"}]}))),
            apply(STATUS, "manager", status(json!({"colour": "blue"}))),
            get(BINDING),
            delete(BINDING),
        ]),
        script("a status that someone replaces", vec![
            post("clusterbindings", binding()),
            apply(STATUS, "manager", status(json!({"phase": "Ready", "conditions": [condition("Ready", "True")]}))),
            apply(STATUS, "syncer", status(json!({"nodes": 3, "conditions": [condition("Leasing", "True")]}))),
            merge(STATUS, json!({"status": {"conditions": [condition("Ready", "False")]}})),
            apply(STATUS, "syncer", status(json!({"nodes": 3, "conditions": [condition("Leasing", "True")]}))),
            apply(STATUS, "manager", status(json!({"phase": "Ready", "conditions": [condition("Ready", "True")]}))),
            apply(&format!("{STATUS}?force=true"), "manager", status(json!({"phase": "Ready", "conditions": [condition("Ready", "True")]}))),
            merge(STATUS, json!({"status": null})),
            apply(STATUS, "manager", status(json!({"phase": "Ready", "conditions": [condition("Ready", "True")]}))),
            apply(BINDING, "user", binding()),
            apply(BINDING, "user", binding()),
            merge(BINDING, json!({"metadata": {"finalizers": ["kubeocean.io/clusterbinding-manager"]}})),
            apply(BINDING, "user", binding()),
            delete(BINDING),
            apply(STATUS, "manager", status(json!({"phase": "Failed", "conditions": [condition("Ready", "True")]}))),
            merge(BINDING, json!({"metadata": {"finalizers": null}})),
        ]),
        script("applying a deployment", thrice("deployments/d", &deployment(), json!({"spec": {"replicas": 0, "template": {"spec": {"serviceAccountName": "other"}}}, "metadata": {"annotations": {"kubeocean.io/template-hash": "1", "x": "y"}}}))),
        script("a deployment in use", vec![
            apply("deployments/d", "manager", deployment()),
            merge("deployments/d/status", json!({"status": {"observedGeneration": 1, "replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "conditions": [{"type": "Available", "status": "True", "reason": "R", "message": "m"}]}})),
            apply("deployments/d", "manager", deployment()),
            merge("deployments/d/status", json!({"status": {"replicas": -1}})),
            merge("deployments/d/status", json!({"status": {"replicas": 1, "readyReplicas": 2}})),
            merge("deployments/d/scale", json!({"spec": {"replicas": 4}})),
            get("deployments/d"),
            apply("deployments/d", "manager", deployment()),
            strategic("deployments/d", json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2001"}}}}})),
            apply("deployments/d", "manager", deployment()),
            merge("deployments/d/scale", json!({"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "spec": {"replicas": 5}})),
            merge("deployments/d/scale", json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 5}})),
            merge("deployments/d/scale", json!({"spec": {"replicas": -1}})),
            merge("deployments/d/scale?dryRun=All", json!({"spec": {"replicas": 5}})),
            get("deployments/d/scale"),
            delete_with("deployments/d", json!({"propagationPolicy": "Foreground", "preconditions": {"uid": "{uid:deployments/d}"}})),
            apply("deployments/d", "manager", deployment()),
            merge("deployments/d", json!({"metadata": {"finalizers": null}})),
        ]),
        script("a deployment that is refused", vec![
            post("deployments", json!({"metadata": {"name": "d"}, "spec": {}})),
            post("deployments", json!({"metadata": {"name": "d"}, "spec": {"selector": {}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}})),
            post("deployments", json!({"metadata": {"name": "d"}, "spec": {"replicas": -1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}})),
            post("deployments", json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}})),
            post("deployments", json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}})),
            post("deployments", json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}})),
            post("deployments", json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "strategy": {"type": "Sometimes"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}}})),
            apply("deployments/d", "m", json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 2}})),
        ]),
        script("applying a service", thrice("services/s", &service(json!({"selector": {"app": "proxier"}, "ports": [{"name": "https", "port": 10250, "targetPort": 10250}, {"name": "metrics", "port": 80, "targetPort": "metrics"}]})), json!({"spec": {"selector": {"app": "other"}}}))),
        script("applying a headless service", thrice("services/s", &service(json!({"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "proxier"}, "ports": [{"name": "https", "port": 10250}]})), json!({"spec": {"publishNotReadyAddresses": false}}))),
        script("applying a service for the world", thrice("services/s", &service(json!({"type": "LoadBalancer", "selector": {"app": "proxier"}, "externalTrafficPolicy": "Cluster", "ports": [{"name": "https", "port": 443, "targetPort": 10250}]})), json!({"metadata": {"labels": {"a": "c"}}}))),
        script("a service changes its type", vec![
            post("services", service(json!({"selector": {"a": "b"}, "ports": [{"port": 80}]}))),
            merge("services/s", json!({"spec": {"type": "NodePort"}})),
            merge("services/s", json!({"spec": {"type": "LoadBalancer"}})),
            merge("services/s/status", json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})),
            merge("services/s/status", json!({"status": {"loadBalancer": {"ingress": [{"ip": "nowhere"}]}}})),
            merge("services/s", json!({"spec": {"type": "ClusterIP"}})),
            merge("services/s", json!({"spec": {"ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "name": "x"}]}})),
            merge("services/s", json!({"spec": {"sessionAffinity": "ClientIP"}})),
            merge("services/s", json!({"spec": {"sessionAffinity": "None"}})),
            merge("services/s", json!({"spec": {"type": "ExternalName", "externalName": "example.com"}})),
            merge("services/s", json!({"spec": {"type": "ClusterIP", "externalName": null}})),
            get("services?fieldSelector=spec.type%3DClusterIP"),
        ]),
        script("applying a service account", thrice("serviceaccounts/s", &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s", "labels": {"a": "b"}}, "automountServiceAccountToken": false, "imagePullSecrets": [{"name": "x"}]}), json!({"metadata": {"labels": {"a": "c"}}}))),
        script("applying a role", thrice("roles/r", &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["w1"], "verbs": ["get", "watch"]}]}), json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}))),
        script("applying a binding of a role", thrice("rolebindings/r", &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "{ns}"}, {"kind": "Group", "name": "g", "apiGroup": "rbac.authorization.k8s.io"}]}), json!({"subjects": [{"kind": "User", "name": "u"}]}))),
        script("applying a binding for the whole cluster", {
            let mut steps = thrice("clusterrolebindings/{ns}", &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "{ns}"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "{ns}"}]}), json!({"subjects": null}));
            steps.push(merge("clusterrolebindings/{ns}", json!({"roleRef": {"name": "edit"}})));
            steps.push(delete("clusterrolebindings/{ns}"));
            steps
        }),
        script("applying a role for the whole cluster", {
            let mut steps = thrice("clusterroles/{ns}", &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "{ns}"}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]}]}), json!({"rules": []}));
            steps.push(delete("clusterroles/{ns}"));
            steps
        }),
        script("rights that are refused", vec![
            post("roles", json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]})),
            post("roles", json!({"metadata": {"name": "r"}, "rules": [{"resources": ["pods"], "verbs": ["get"]}]})),
            post("roles", json!({"metadata": {"name": "r"}, "rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]})),
            post("rolebindings", json!({"metadata": {"name": "r"}, "roleRef": {"kind": "Thing", "name": "r"}, "subjects": [{"kind": "Nobody", "name": "u"}]})),
            post("rolebindings", json!({"metadata": {"name": "r"}, "roleRef": {"kind": "Role", "name": ""}, "subjects": [{"kind": "ServiceAccount", "name": ""}]})),
            post("clusterrolebindings", json!({"metadata": {"name": "{ns}"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "x"}]})),
        ]),
        script("applying an autoscaler", thrice("horizontalpodautoscalers/h", &autoscaler(json!({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}]})), json!({"spec": {"maxReplicas": 9}}))),
        script("applying an autoscaler that behaves", thrice("horizontalpodautoscalers/h", &autoscaler(json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}})), json!({"spec": {"minReplicas": 1}}))),
        script("an autoscaler that is refused", vec![
            post("horizontalpodautoscalers", autoscaler(json!({"maxReplicas": 1}))),
            post("horizontalpodautoscalers", autoscaler(json!({"minReplicas": 0}))),
            post("horizontalpodautoscalers", autoscaler(json!({"maxReplicas": 0}))),
            post("horizontalpodautoscalers", autoscaler(json!({"scaleTargetRef": {"kind": "", "name": ""}}))),
            post("horizontalpodautoscalers", autoscaler(json!({}))),
            merge("horizontalpodautoscalers/h/status", json!({"status": {"currentReplicas": -2}})),
            merge("horizontalpodautoscalers/h/status", json!({"status": {"currentReplicas": 2, "desiredReplicas": 3, "conditions": [{"type": "AbleToScale", "status": "True"}]}})),
            get("horizontalpodautoscalers/h"),
        ]),
        script("applying a budget", thrice("poddisruptionbudgets/b", &json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"a": "b"}}}}), json!({"spec": {"maxUnavailable": 1}}))),
        script("applying a policy of a network", thrice("networkpolicies/n", &json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}, "spec": {"podSelector": {"matchLabels": {"a": "b"}}, "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}]}}), json!({"spec": {"ingress": []}}))),
        script("applying a map and a secret", {
            let mut steps = thrice("configmaps/c", &config("c"), json!({"data": {"a": "2", "b": "3"}}));
            steps.extend(thrice("secrets/s", &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque", "data": {"a": "YQ=="}}), json!({"data": {"a": "Yg=="}})));
            steps.push(apply("secrets/plain", "manager", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "plain"}, "stringData": {"a": "b"}})));
            steps.push(apply("secrets/plain", "manager", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "plain"}, "stringData": {"a": "b"}})));
            steps.push(apply("secrets/plain", "manager", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "plain"}, "stringData": {"a": "c"}})));
            steps
        }),
        script("secrets of many types", vec![
            post("secrets", json!({"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "data": {"tls.crt": ""}})),
            post("secrets", json!({"metadata": {"name": "s"}, "type": "kubernetes.io/dockerconfigjson", "data": {}})),
            post("secrets", json!({"metadata": {"name": "s"}, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "YQ=="}})),
            post("secrets", json!({"metadata": {"name": "s"}, "type": "kubernetes.io/dockercfg", "data": {".dockercfg": "YQ=="}})),
            post("secrets", json!({"metadata": {"name": "s"}, "type": "kubernetes.io/basic-auth", "data": {}})),
            post("secrets", json!({"metadata": {"name": "s"}, "type": "kubernetes.io/ssh-auth", "data": {}})),
            post("secrets", json!({"metadata": {"name": "s"}, "type": "kubernetes.io/service-account-token"})),
            post("secrets", json!({"metadata": {"name": "s", "annotations": {"kubernetes.io/service-account.name": "default"}}, "type": "kubernetes.io/service-account-token"})),
            post("secrets", json!({"metadata": {"name": "bad"}, "data": {"bad/key": "YQ==", ".": "YQ==", "..a": "YQ=="}})),
            post("configmaps", json!({"metadata": {"name": "big"}, "data": {"a": "x".repeat(1_048_577)}})),
            post("configmaps", json!({"metadata": {"name": "full"}, "data": {"a": "x".repeat(1_048_576)}})).code_only(201),
            post("secrets", json!({"metadata": {"name": "big"}, "stringData": {"a": "x".repeat(1_048_577)}})),
            post("secrets", json!({"metadata": {"name": "full"}, "stringData": {"a": "x".repeat(1_048_576)}})).code_only(201),
            post("configmaps", json!({"metadata": {"name": "twice"}, "data": {"a": "1"}, "binaryData": {"a": "YQ=="}})),
        ]),
        script("applying other things", {
            let mut steps = thrice("pods/p", &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "x:1"}]}}), json!({"metadata": {"labels": {"a": "c"}}}));
            steps.extend(thrice("namespaces/{ns}-two", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}-two", "labels": {"a": "b"}}}), json!({"metadata": {"labels": {"a": "c"}}})));
            steps.push(delete("namespaces/{ns}-two"));
            steps.extend(thrice("priorityclasses/{ns}", &json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "{ns}"}, "value": 5, "description": "d"}), json!({"description": "e"})));
            steps.push(delete("priorityclasses/{ns}"));
            steps.extend(thrice("nodes/{ns}", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "{ns}", "labels": {"a": "b"}}, "spec": {"providerID": "kubeocean://w1/n1", "taints": [{"key": "k", "effect": "NoSchedule"}]}}), json!({"spec": {"unschedulable": true}})));
            steps.push(delete("nodes/{ns}"));
            steps.extend(thrice("endpointslices/e", &json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "e", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}], "ports": [{"name": "https", "port": 10250, "protocol": "TCP"}]}), json!({"endpoints": [{"addresses": ["10.0.0.2"]}]})));
            steps.extend(thrice("daemonsets/d", &json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}}), json!({"spec": {"minReadySeconds": 5}})));
            steps.extend(thrice("statefulsets/s", &json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}}), json!({"spec": {"replicas": 5}})));
            steps.extend(thrice("ingresses/i", &json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": {"rules": [{"host": "example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}), json!({"metadata": {"labels": {"a": "c"}}})));
            steps
        }),
        script("a definition's objects", vec![
            apply(BINDING, "user", {
                let mut binding = binding();
                binding["status"] = json!({"phase": "Ready"});
                binding
            }),
            apply(BINDING, "user", binding()),
            merge(STATUS, json!({"status": {"phase": "Ready"}})),
            get("clusterbindings/{ns}/status"),
            delete("clusterbindings?fieldSelector=metadata.name%3D{ns}"),
            get(BINDING),
        ]),
        script("applying a definition", {
            let path = "customresourcedefinitions/things.{ns}.io";
            let mut other = definition();
            other["spec"]["scope"] = "Cluster".into();
            vec![
                apply(path, "manager", definition()).code_only(201),
                get("/apis/{ns}.io/v1").until(200),
                get("/apis/{ns}.io/v1"),
                apply(path, "manager", definition()).code_only(200),
                post("/apis/{ns}.io/v1/namespaces/{ns}/things", json!({"apiVersion": "{ns}.io/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {}})).until(201),
                get("/apis/{ns}.io/v1/namespaces/{ns}/things/t"),
                apply(path, "manager", other),
                delete("/apis/{ns}.io/v1/namespaces/{ns}/things/t"),
            ]
        }),
        script("leases", vec![
            post("leases", json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "acquireTime": "2001-01-01T00:00:00.000000Z", "renewTime": "2001-01-01T00:00:00.000000Z", "leaseTransitions": 0}})),
            put("leases/l", json!({"metadata": {"name": "l", "resourceVersion": "{rv:leases/l}"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:01.5Z", "leaseTransitions": 1}})),
            merge("leases/l", json!({"spec": {"renewTime": "2001-01-01T00:00:02.123456789Z"}})),
            merge("leases/l", json!({"spec": {"renewTime": "yesterday"}})),
            merge("leases/l", json!({"spec": {"leaseTransitions": -1}})),
            merge("leases/l", json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})),
            merge("leases/l", json!({"spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "x"}})),
            apply("leases/m", "manager", json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "m"}, "spec": {"holderIdentity": "a", "renewTime": "2001-01-01T00:00:00.000000Z"}})),
            apply("leases/m", "manager", json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "m"}, "spec": {"holderIdentity": "a", "renewTime": "2001-01-01T00:00:00.000000Z"}})),
        ]),
        script("nodes that are refused", vec![
            post("nodes", json!({"metadata": {"name": "{ns}"}, "spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}})),
            post("nodes", json!({"metadata": {"name": "{ns}"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}})),
            post("nodes", json!({"metadata": {"name": "{ns}"}, "spec": {"taints": [{"key": "bad key", "value": "bad value", "effect": "NoSchedule"}]}})),
            post("nodes", json!({"metadata": {"name": "{ns}"}, "spec": {"taints": [{"effect": "NoSchedule"}, {"key": "b"}]}})),
            post("nodes", json!({"metadata": {"name": "{ns}"}, "spec": {"providerID": "kubeocean://w1/n1"}, "status": {"capacity": {"cpu": "-1"}}})),
            post("nodes", json!({"metadata": {"name": "{ns}"}, "spec": {"providerID": "kubeocean://w1/n1", "podCIDR": "10.0.0.0/24"}})),
            merge("nodes/{ns}", json!({"spec": {"providerID": "kubeocean://w1/n2"}})),
            merge("nodes/{ns}", json!({"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}})),
            merge("nodes/{ns}", json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "2001-01-01T00:00:00Z"}]}})),
            merge("nodes/{ns}", json!({"spec": {"taints": [{"key": "a", "effect": "Sometimes"}, {"key": "b"}]}})),
            merge("nodes/{ns}/status", json!({"status": {"capacity": {"cpu": "1.5", "pods": "1.5"}}})),
            merge("nodes/{ns}/status", json!({"status": {"capacity": {"cpu": "1.5", "memory": "1.5", "pods": "110", "hugepages-2Mi": "1.5", "example.com/gpu": "0.5"}}})),
            merge("nodes/{ns}/status", json!({"status": {"addresses": [{"type": "InternalIP", "address": "1.1.1.1"}, {"type": "InternalIP", "address": "1.1.1.1"}]}})),
            merge("nodes/{ns}/status", json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}, "nodeInfo": {"kubeletVersion": "v1"}}})),
            delete("nodes/{ns}"),
        ]),
    ]
}
