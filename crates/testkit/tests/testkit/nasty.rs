//! What the model makes of objects as nobody wants them: an answer or a complaint, and never more than there is.

use jiff::Timestamp;
use kubeocean_api::ClusterBinding;
use kubeocean_model::bind::BindingObject;
use kubeocean_model::binding::Binding;
use kubeocean_model::lease::{Explanation, Ledger, Policies, User, WorkerPolicies};
use kubeocean_model::object::Object;
use kubeocean_model::policies::SeenPolicy;
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::vnode::{PhysicalNode, VirtualNode};
use kubeocean_model::window::Zone;
use kubeocean_model::{hostports, requests};
use kubeocean_testkit::generators::Nasty;
use serde_json::{Value, json};

const SEEDS: u64 = 600;

fn object(value: Value) -> Option<Object> {
    Object::from_value(value).ok()
}

fn binding() -> Binding {
    let object: ClusterBinding = serde_json::from_value(json!({
        "metadata": {"name": "w1", "uid": "b-1"},
        "spec": {"clusterID": "w1", "mountNamespace": "mount", "secretRef": {"name": "s", "namespace": "n"}},
    }))
    .unwrap();
    Binding::parse(&object).unwrap()
}

#[test]
fn no_object_makes_the_model_panic_or_offer_more_than_there_is() {
    let (binding, now) = (binding(), "2026-03-29T00:59:59Z".parse::<Timestamp>().unwrap());
    let mut leased = 0;
    for seed in 0..SEEDS {
        let mut nasty = Nasty::new(seed);
        let maim = seed % 3 == 0;
        let mut drawn = |draw: fn(&mut Nasty) -> Value| {
            let made = draw(&mut nasty);
            let stored = nasty.stored(made);
            object(if maim { nasty.maimed(stored) } else { stored })
        };
        let nodes: Vec<_> = (0..3).filter_map(|_| drawn(Nasty::node)).collect();
        let pods: Vec<_> = (0..5).filter_map(|_| drawn(|nasty| nasty.pod("theirs"))).collect();
        let policies: Vec<_> = (0..4).filter_map(|_| drawn(|nasty| nasty.policy("w1"))).collect();
        drawn(Nasty::binding).map(|binding| BindingObject::read(&binding));
        let mut ledger = Ledger::default();
        for pod in &pods {
            let spec = pod.raw("spec").map_or("{}", serde_json::value::RawValue::get);
            let status = pod.raw("status").map(serde_json::value::RawValue::get);
            if let Ok(requests) = requests::of_pod(spec, status) {
                ledger.put(&pod.meta.uid, User::Namespace("theirs".to_owned()), requests);
            }
            hostports::of_pod(spec);
            VirtualPod::read(pod.clone());
        }
        let candidates = policies.iter().map(|one| SeenPolicy::read(one, &Zone::utc()).candidate).collect();
        let policies = Policies { worker: WorkerPolicies::Served(candidates), computing: Vec::new() };
        for node in &nodes {
            VirtualNode::read(node);
            let Ok(node) = PhysicalNode::read(node) else { continue };
            let explanation = Explanation::of(&binding, &policies, &node.node, &ledger, now);
            assert!(!explanation.to_string().is_empty());
            let Some(lease) = explanation.lease() else { continue };
            leased += 1;
            for (resource, offered) in lease.offered().iter() {
                let base = node.node.base().get(resource).at_least_zero();
                assert!(offered <= base, "seed {seed}: {offered} {resource} of {base}");
            }
        }
    }
    assert!(leased > 100, "only {leased} nodes were leased");
}
