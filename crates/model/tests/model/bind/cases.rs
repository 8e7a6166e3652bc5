//! The cases of `tests/scripts/bind.txt`.

use kubeocean_api::keys::{annotations, finalizers};
use kubeocean_model::bind::{Finding, Refusal, Remains, Role, TaskState, TemplateFault, Worker};
use kubeocean_model::object::{Object, Pairs};
use serde_json::json;

use super::{Case, case, deployment, hold, now, stamp, vnode, worker};

#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(super) fn cases() -> Vec<Case> {
    let manager = finalizers::CLUSTER_BINDING_MANAGER;
    let syncer = finalizers::CLUSTER_BINDING_SYNCER;
    let server = || "https://10.0.0.1:6443".to_owned();
    let unreachable = || Finding::Unreachable { server: server(), cause: "no answer within 30 s".to_owned() };
    vec![
        case("a new binding is asked for before it goes").fresh().with(|case| {
            case.object["metadata"]["finalizers"] = json!(["someone/else"]);
        }),
        case("nobody has looked yet").fresh().found(Finding::NotYet),
        case("the worker is good, and nothing is there").fresh(),
        case("the workers are not available yet").with(|case| {
            case.existing = Role::ALL.map(|role| deployment(role, &json!({}))).into();
        }),
        case("all is well"),
        case("a manager that has just started says nothing new").found(Finding::NotYet),
        case("several fields are wrong").fresh().with(|case| {
            case.object["spec"]["clusterID"] = "UPPER".into();
            case.object["spec"]["secretRef"]["name"] = "".into();
        }),
        case("the name of the Secret is a path").fresh().with(|case| {
            case.object["spec"]["secretRef"]["name"] = "../../nodes".into();
        }),
        case("the object is of another version").fresh().with(|case| case.object["spec"]["secretRef"] = 1.into()),
        case("an older binding has the clusterID").fresh().with(|case| case.rival = Some("w0")),
        case("an older binding has the clusterID of one that is bound").with(|case| case.rival = Some("w0")),
        case("there is no Secret").fresh().found(Finding::NoSecret),
        case("the Secret may not be read").fresh().found(Finding::SecretForbidden("secrets \"s\" is forbidden".into())),
        case("the Secret has another key").fresh().found(Finding::NoKubeconfigKey),
        case("the kubeconfig runs a command").fresh().found(Finding::BadKubeconfig("the kubeconfig runs a command".into())),
        case("the worker does not answer, at first").fresh().found(unreachable()),
        case("the worker does not answer any more").found(unreachable()),
        case("the token has expired")
            .found(Finding::Unauthorized { server: server(), message: "Unauthorized".into() }),
        case("a new token that is none").with(|case| case.kept = true)
            .found(Finding::Unauthorized { server: server(), message: "Unauthorized".into() }),
        case("a new kubeconfig with a dead address").with(|case| case.kept = true).found(unreachable()),
        case("the certificate of the worker has expired").found(Finding::Unreachable {
            server: server(),
            cause: "invalid peer certificate: certificate expired: verification time 1795000000 (UNIX), but certificate is \
                    not valid after 1794000000 (1000000 seconds ago)"
                .into(),
        }),
        case("the certificate of the worker is of tomorrow").found(Finding::Unreachable {
            server: server(),
            cause: "invalid peer certificate: certificate not valid yet".into(),
        }),
        case("the certificate of the worker is for another address").found(Finding::Unreachable {
            server: server(),
            cause: "invalid peer certificate: NotValidForName".into(),
        }),
        case("our certificate is not taken").fresh().found(Finding::Unreachable {
            server: server(),
            cause: "received fatal alert: CertificateExpired".into(),
        }),
        case("the authority of the worker is another one").fresh().found(Finding::Unreachable {
            server: server(),
            cause: "invalid peer certificate: UnknownIssuer".into(),
        }),
        case("someone deleted the Secret").found(Finding::NoSecret),
        case("the Secret may not be read any more").found(Finding::SecretForbidden("secrets \"s\" is forbidden".into())),
        case("the kubeconfig was taken out of the Secret").found(Finding::NoKubeconfigKey),
        case("the lender has not made the namespace").fresh().found(Finding::MountNamespaceMissing),
        case("the lender deletes the namespace").found(Finding::MountNamespaceEnds),
        case("rights are missing").fresh().found(Finding::Denied {
            user: "system:serviceaccount:lender:kubeocean".into(),
            missing: vec!["create pods in namespace mount".into(), "watch nodes".into()],
        }),
        case("the lender took rights back").found(Finding::Denied {
            user: "system:serviceaccount:lender:kubeocean".into(),
            missing: vec!["create pods in namespace mount".into()],
        }),
        case("a bad new kubeconfig takes nothing down").found(Finding::BadKubeconfig("it is not YAML".into())),
        case("the kubeconfig leads to another cluster").found(worker("p-2")),
        case("another cluster is accepted").found(worker("p-2")).annotated(annotations::ACCEPT_WORKER, "p-2"),
        case("the identity lives in the mount namespace").fresh().found(Finding::Good(Worker {
            uid: "p-1".into(),
            user: "system:serviceaccount:mount:default".into(),
            nodes: 3,
        })),
        case("a size class that is misspelt")
            .fresh()
            .with(|case| case.object["metadata"]["annotations"] = json!({annotations::SIZE_CLASS: "lrage"})),
        case("the mount namespace is shared").fresh().with(|case| case.neighbours = vec!["w2".into(), "w3".into()]),
        case("someone deleted the syncer").with(|case| drop(case.existing.pop())),
        case("someone scaled the proxier").with(|case| {
            let selector = json!({"matchLabels": {"app": "proxier"}});
            let mut object = json!({"metadata": {}, "spec": {"replicas": 5, "selector": selector}});
            let known = &case.existing[0].object;
            object["metadata"] = json!({
                "name": &*known.meta.name, "namespace": "kubeocean-system", "uid": "proxier-uid", "resourceVersion": "10",
                "labels": stamp(Role::Proxier), "annotations": {annotations::TEMPLATE_HASH: "0123"},
                "ownerReferences": [{"uid": "b-1", "kind": "ClusterBinding"}],
            });
            object["status"] = json!({"availableReplicas": 5, "conditions": [{"type": "Available", "status": "True"}]});
            case.existing[0].object = Object::from_value(object).unwrap();
        }),
        case("an object that the template no longer has").with(|case| {
            let mut extra = deployment(Role::Syncer, &json!({"type": "Available", "status": "True"}));
            extra.object.meta.name = "kubeocean-syncer-w1".into();
            case.existing.push(extra);
        }),
        case("a Deployment of an older installation selects other pods").with(|case| {
            let mut old = json!({"metadata": {}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "old"}}}});
            old["metadata"] = json!({
                "name": "kubeocean-syncer-c1", "namespace": "kubeocean-system", "uid": "old-uid", "resourceVersion": "3",
                "ownerReferences": [{"uid": "b-1", "kind": "ClusterBinding"}],
            });
            case.existing[1].object = Object::from_value(old).unwrap();
        }),
        case("the template is broken").with(|case| {
            let message = "/etc/kubeocean/syncer-template/deployment.yaml: line 7: undefined value".into();
            case.template = Some(TemplateFault { role: Role::Syncer, message });
        }),
        case("the template of the proxier is broken").with(|case| {
            let message = "/etc/kubeocean/proxier-template/service.yaml: line 3: undefined value".into();
            case.template = Some(TemplateFault { role: Role::Proxier, message });
        }),
        case("the template is broken, and nothing is there").fresh().with(|case| {
            let message = "/etc/kubeocean/syncer-template/deployment.yaml: line 7: undefined value".into();
            case.template = Some(TemplateFault { role: Role::Syncer, message });
        }),
        case("the API server does not take an object").with(|case| {
            let message = "Deployment kubeocean-system/kubeocean-proxier-c1 is refused by the API server: quota".into();
            case.refusal = Some(Refusal { role: Role::Proxier, message });
        }),
        case("the syncer does not come up").with(|case| {
            let condition = json!({
                "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
                "message": "ReplicaSet has timed out progressing",
            });
            case.existing[1] = deployment(Role::Syncer, &condition);
        }),
        case("a quota keeps the pods of the syncer away").with(|case| {
            let condition = json!({
                "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "pods \"a\" is forbidden: exceeded quota",
            });
            case.existing[1] = deployment(Role::Syncer, &condition);
        }),
        case("the proxier is being rolled out").with(|case| {
            case.existing[0] = deployment(Role::Proxier, &json!({}));
            // Its controller has not seen the last change yet.
            case.existing[0].object.meta.generation = 2;
        }),
        case("inline, both are ready").with(|case| case.inline = Some((TaskState::Ready, TaskState::Ready))),
        case("inline, one panics again and again").with(|case| {
            let until = "2026-11-20T12:00:08Z".parse().unwrap();
            let waiting = TaskState::Waiting { why: "it panicked: oh no".into(), restarts: 3, until };
            case.inline = Some((waiting, TaskState::Ready));
        }),
        case("deleted: the syncer has work to do").deleted(&[manager, syncer]),
        case("deleted: someone took the syncer away, and it is needed")
            .deleted(&[manager, syncer])
            .with(|case| drop(case.existing.pop())),
        case("deleted: the syncer has work to do, and its template is broken").deleted(&[manager, syncer]).with(|case| {
            let message = "/etc/kubeocean/syncer-template/deployment.yaml: line 7: undefined value".into();
            case.template = Some(TemplateFault { role: Role::Syncer, message });
        }),
        case("deleted: the syncer has work to do, and its binding is misspelt")
            .with_a_misspelt_selector()
            .deleted(&[manager, syncer]),
        case("deleted: the syncer has work to do, and its binding cannot be read").deleted(&[manager, syncer]).with(|case| {
            case.object["spec"]["secretRef"] = 1.into();
        }),
        case("deleted: the syncer has work to do, and the worker does not answer")
            .deleted(&[manager, syncer])
            .found(unreachable()),
        case("deleted: the syncer is done").deleted(&[manager]),
        case("deleted: the syncer is done, and its binding is misspelt").with_a_misspelt_selector().deleted(&[manager]),
        case("deleted: the Deployments are gone, and a node is left").deleted(&[manager]).with(|case| {
            case.existing.clear();
            case.leftovers.push(vnode());
        }),
        case("deleted: the hold of the syncer is left").deleted(&[manager]).with(|case| {
            case.existing.clear();
            case.hold = Some(hold());
        }),
        case("forced: the hold of the syncer is left")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.hold = Some(hold());
            }),
        case("deleted: the syncer has work to do, and holds the lead").deleted(&[manager, syncer]).with(|case| {
            case.existing.clear();
            case.hold = Some(hold());
        }),
        case("deleted: an older binding has the clusterID, and the syncer has work to do")
            .deleted(&[manager, syncer])
            .with(|case| case.rival = Some("w0")),
        case("deleted: an older binding has the clusterID, and an older installation made the Deployments")
            .deleted(&[manager, syncer])
            .with(|case| {
                case.rival = Some("w0");
                for one in &mut case.existing {
                    one.object.meta.labels = Pairs::default();
                }
            }),
        case("deleted: a Deployment waits for its pods, and for someone else").deleted(&[manager]).with(|case| {
            let meta = &mut case.existing[1].object.meta;
            meta.deletion_timestamp = Some(now());
            meta.finalizers = [Box::from("foregroundDeletion"), Box::from("someone/else")].into();
        }),
        case("deleted: the API server does not let the Deployment go").deleted(&[manager]).with(|case| {
            let message = "Deployment kubeocean-system/kubeocean-syncer-c1 is refused by the API server: a webhook says no";
            case.refusal = Some(Refusal { role: Role::Syncer, message: message.into() });
        }),
        case("deleted: nothing is left").deleted(&[manager, "someone/else"]).with(|case| case.existing.clear()),
        case("deleted: the manager was never asked").deleted(&["someone/else"]),
        case("deleted: it never had the clusterID").fresh().deleted(&[manager]).with(|case| case.rival = Some("w0")),
        case("forced: the workers go first").deleted(&[manager, syncer]).annotated(annotations::FORCE_UNBIND, "it burnt"),
        case("forced: a Deployment waits for pods that never end")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                let meta = &mut case.existing[1].object.meta;
                meta.deletion_timestamp = Some(now());
                meta.finalizers = [Box::from("foregroundDeletion")].into();
            }),
        case("forced: what is left has not been counted yet")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| case.existing.clear()),
        case("forced: the worker can be asked")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.remains = Remains::Counted(
                    [("pods", 2), ("secrets", 0), ("services", 1), ("endpointslices", 1), ("persistentvolumes", 3)]
                        .map(|(kind, count)| (kind.to_owned(), count))
                        .into(),
                );
            }),
        case("forced: the syncer was done before")
            .deleted(&[manager])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| case.existing.clear()),
        case("forced: the spec cannot be read, and nobody looks")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.object["spec"]["secretRef"] = 1.into();
            }),
        case("forced: an older binding has the clusterID")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.rival = Some("w0");
            }),
        case("inline, and the Deployments of another mode are still there").with(|case| {
            case.inline = Some((TaskState::Stopped, TaskState::Stopped));
        }),
        case("inline, and this program has no proxier: its Deployment stays").with(|case| {
            case.inline = Some((TaskState::Stopped, TaskState::Missing));
        }),
        case("inline, and this program has neither: nothing is taken down").with(|case| {
            case.inline = Some((TaskState::Missing, TaskState::Missing));
        }),
        case("forced: the worker cannot be asked")
            .deleted(&[manager, syncer])
            .annotated(annotations::FORCE_UNBIND, "it burnt")
            .with(|case| {
                case.existing.clear();
                case.remains = Remains::Unknown("no route to host".into());
            }),
        case("forced without a reason is not forced").deleted(&[manager, syncer]).annotated(annotations::FORCE_UNBIND, " "),
    ]
}
