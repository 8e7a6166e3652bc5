//! Configuration files of a real node's programs. Paths are those inside of the machine: its directory
//! is at `/run/node`.

use std::net::Ipv4Addr;

use crate::image::PAUSE_IMAGE;

/// What the files need to know.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) address: Ipv4Addr,
    pub(super) pods: String,
    pub(super) dns: Ipv4Addr,
    pub(super) snapshotter: &'static str,
}

pub(super) fn containerd(facts: &Facts) -> String {
    let snapshotter = facts.snapshotter;
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# `opt` would make /opt/containerd on the host; the others need what is not here.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE nobody may lower a score below its own.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/node/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"#
    )
}

/// Pods are joined by routes, not by a bridge: on a bridge, an answer from a pod to its neighbour would
/// bypass the rules that turn it back into the service's answer, unless the kernel filters bridges.
pub(super) fn cni(facts: &Facts) -> String {
    let pods = &facts.pods;
    format!(
        r#"{{
  "cniVersion": "0.4.0",
  "name": "sandbox",
  "plugins": [
    {{
      "type": "ptp",
      "ipMasq": false,
      "ipam": {{
        "type": "host-local",
        "ranges": [[{{ "subnet": "{pods}" }}]],
        "routes": [{{ "dst": "0.0.0.0/0" }}]
      }}
    }},
    {{ "type": "portmap", "capabilities": {{ "portMappings": true }}, "snat": false }}
  ]
}}
"#
    )
}

pub(super) fn kubelet(facts: &Facts) -> String {
    let Facts { address, dns, .. } = facts;
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: /run/node/pki/ca.crt}}
authorization: {{mode: Webhook}}
tlsCertFile: /run/node/pki/kubelet.crt
tlsPrivateKeyFile: /run/node/pki/kubelet.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDomain: cluster.local
clusterDNS: [{dns}]
resolvConf: /run/node/resolv.conf
healthzPort: 0
readOnlyPort: 0
registerNode: true
nodeStatusUpdateFrequency: 5s
nodeStatusReportFrequency: 1m
syncFrequency: 10s
# Not the directory on the host that is the default.
volumePluginDir: /var/lib/kubelet/volume-plugins
# Of a log that was rotated only the end is read, and who measures how fast logs are read needs a long one.
containerLogMaxSize: 512Mi
# `stream=Stderr`, for an API server that lets people ask for it: none does unless told to.
featureGates: {{PodLogsQuerySplitStreams: true}}
cgroupDriver: cgroupfs
# The control groups of a namespace are not a whole machine's.
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
oomScoreAdj: 0
# The disk is the host's, and how full it is is not this node's affair.
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 50Mi
  nodefs.available: 1Mi
  nodefs.inodesFree: 0%
  imagefs.available: 1Mi
  imagefs.inodesFree: 0%
shutdownGracePeriod: 0s
"
    )
}

pub(super) fn kube_proxy(facts: &Facts) -> String {
    let Facts { address, pods, .. } = facts;
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {{kubeconfig: /run/node/kube-proxy.kubeconfig}}
bindAddress: {address}
healthzBindAddress: {address}:10256
metricsBindAddress: 127.0.0.1:10249
detectLocalMode: ClusterCIDR
clusterCIDR: {pods}
# Limits of the whole kernel are left as they are.
conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}
oomScoreAdj: 0
"
    )
}
