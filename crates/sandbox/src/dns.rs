//! The cluster DNS as pods know it: Service `kube-dns`, led to the CoreDNS beside the API server.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::net::Plan;

pub(crate) async fn publish(client: &kube::Client, plan: Plan, cluster: usize) -> Result<(), kube::Error> {
    let params = PatchParams::apply("kubeocean-sandbox").force();
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "kube-dns", "labels": { "k8s-app": "kube-dns" } },
        "spec": {
            "clusterIP": plan.dns_service(cluster),
            "ports": [
                { "name": "dns", "protocol": "UDP", "port": 53 },
                { "name": "dns-tcp", "protocol": "TCP", "port": 53 },
            ],
        },
    });
    let services = Api::<Service>::namespaced(client.clone(), "kube-system");
    services.patch("kube-dns", &params, &Patch::Apply(&service)).await?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": "kube-dns", "labels": { "kubernetes.io/service-name": "kube-dns" } },
        "addressType": "IPv4",
        "ports": [
            { "name": "dns", "protocol": "UDP", "port": 53 },
            { "name": "dns-tcp", "protocol": "TCP", "port": 53 },
        ],
        "endpoints": [{ "addresses": [plan.api_server(cluster)], "conditions": { "ready": true } }],
    });
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), "kube-system");
    slices.patch("kube-dns", &params, &Patch::Apply(&slice)).await.map(drop)
}
