//! The control plane of one cluster: keys, kubeconfigs, and the command lines of its programs.

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use crate::error::{Error, io_error};
use crate::kubeconfig::{self, Access};
use crate::lab::{Program, Toolset};
use crate::metrics_server;
use crate::net::Plan;
use crate::pki::{self, Authority, Identity, write_private};
use crate::process::Launch;
use crate::spec::ClusterSpec;

/// Client rates of scheduler and controller-manager. The default of 20 per second hides every benchmark.
const CLIENT_QPS: &str = "--kube-api-qps=1000";
const CLIENT_BURST: &str = "--kube-api-burst=2000";

/// What all control planes of a sandbox share.
pub(crate) struct Setting<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) tools: &'a Toolset,
    /// Present when the sandbox has real nodes.
    pub(crate) network: Option<Plan>,
    pub(crate) audit: bool,
}

/// One cluster, laid out on disk and ready to be started.
pub(crate) struct ControlPlane {
    pub(crate) spec: ClusterSpec,
    pub(crate) index: usize,
    pub(crate) directory: PathBuf,
    pub(crate) authority: Authority,
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
    front_proxy: Authority,
    service_account_keys: (PathBuf, PathBuf),
    tools: Toolset,
    network: Option<Plan>,
    audit: bool,
    kubeconfigs: PathBuf,
    admin: Identity,
}

impl ControlPlane {
    /// Makes directories, keys and certificates. Nothing is started.
    pub(crate) fn lay_out(setting: &Setting<'_>, index: usize, spec: ClusterSpec) -> Result<Self, Error> {
        let directory = setting.directory.join(&spec.name);
        let pki = directory.join("pki");
        for made in [&pki, &directory.join("logs"), &directory.join("run")] {
            fs::create_dir_all(made).map_err(io_error("creating", made))?;
        }
        let socket = directory.join("etcd.sock");
        // sun_path holds 108 bytes, one of which is the end.
        if socket.as_os_str().len() > 107 {
            return Err(Error::PathTooLong { path: socket.display().to_string() });
        }
        // It becomes part of an address, where these mean something else.
        let text = socket.to_string_lossy();
        if let Some(odd) = text.chars().find(|c| c.is_control() || "%#?\"'`\\,;".contains(*c)) {
            let what = format!(
                "the path {text:?} has the character {odd:?}: set KUBEOCEAN_SANDBOX_DIR to a plainer one"
            );
            return Err(Error::InvalidSpec { what });
        }
        let authority = Authority::create(&pki, "ca", &format!("kubeocean-sandbox-{}", spec.name))?;
        let front_proxy = Authority::create(&pki, "front-proxy-ca", "front-proxy-ca")?;
        let admin = authority.client("admin", "kubeocean-sandbox-admin", Some("system:masters"))?;
        Ok(Self {
            address: setting.network.map_or(Ipv4Addr::LOCALHOST, |plan| plan.api_server(index)),
            port: 6443,
            front_proxy,
            service_account_keys: pki::service_account_keys(&pki)?,
            tools: setting.tools.clone(),
            network: setting.network,
            audit: setting.audit,
            kubeconfigs: setting.directory.join("kubeconfig"),
            admin,
            authority,
            directory,
            index,
            spec,
        })
    }

    pub(crate) fn server(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }

    /// Full access, for people and tests.
    pub(crate) fn admin_access(&self) -> Access {
        self.access(&self.spec.name, &self.server(), self.admin.clone())
    }

    /// Full access by way of another address that leads to this API server.
    pub(crate) fn admin_access_via(&self, server: &str) -> Access {
        self.access(&self.spec.name, server, self.admin.clone())
    }

    fn access(&self, name: &str, server: &str, identity: Identity) -> Access {
        Access {
            name: name.to_owned(),
            server: server.to_owned(),
            authority_pem: self.authority.pem(),
            identity,
        }
    }

    /// Where [`Self::write_kubeconfig`] puts the admin's.
    pub(crate) fn kubeconfig_path(&self) -> PathBuf {
        self.kubeconfigs.join(format!("{}.yaml", self.spec.name))
    }

    /// Writes the admin's kubeconfig: once the port is settled.
    pub(crate) fn write_kubeconfig(&self) -> Result<(), Error> {
        write_private(&self.kubeconfig_path(), &kubeconfig::render(&[self.admin_access()]))
    }

    /// A kubeconfig file for a component of this cluster.
    pub(crate) fn component_kubeconfig(
        &self,
        file: &str,
        user: &str,
        group: Option<&str>,
    ) -> Result<PathBuf, Error> {
        let identity = self.authority.client(file, user, group)?;
        let path = self.directory.join(format!("{file}.kubeconfig"));
        let access = self.access(&self.spec.name, &self.server(), identity);
        write_private(&path, &kubeconfig::render(&[access]))?;
        Ok(path)
    }

    /// A launch of a program of this cluster; flags that the spec adds come last and so win.
    pub(crate) fn launch(&self, name: &str, command: Vec<OsString>) -> Launch {
        Launch {
            cluster: self.spec.name.clone(),
            name: name.to_owned(),
            command,
            env: Vec::new(),
            log: self.directory.join("logs").join(format!("{name}.log")),
            wrapped: false,
        }
    }

    fn program(&self, program: Program, flags: Vec<String>) -> Result<Launch, Error> {
        let mut command: Vec<OsString> = vec![self.tools.path(program)?.into()];
        command.extend(flags.into_iter().map(OsString::from));
        command.extend(self.spec.extra_args(program.name()).map(OsString::from));
        Ok(self.launch(program.name(), command))
    }

    pub(crate) fn etcd(&self) -> Result<Launch, Error> {
        let socket = self.directory.join("etcd.sock");
        self.program(
            Program::Etcd,
            vec![
                format!("--data-dir={}", self.directory.join("etcd").display()),
                // A socket in a directory that only its owner may enter: no port to collide, no stranger.
                format!("--listen-client-urls=unix://{}", socket.display()),
                // Only read by clients that ask for other members; there are none.
                "--advertise-client-urls=http://127.0.0.1:2379".into(),
                "--listen-peer-urls=http://127.0.0.1:0".into(),
                // Throw-away data.
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
            ],
        )
    }

    pub(crate) fn api_server(&self) -> Result<Launch, Error> {
        let kubelet_client = self.authority.client(
            "apiserver-kubelet-client",
            "kube-apiserver-kubelet-client",
            Some("system:masters"),
        )?;
        let proxy_client = self.front_proxy.client("front-proxy-client", "front-proxy-client", None)?;
        let (first_service, services) = match self.network {
            Some(plan) => (plan.first_service(self.index), plan.services(self.index)),
            None => (Ipv4Addr::new(10, 96, 0, 1), "10.96.0.0/22".to_owned()),
        };
        let serving = self.authority.server(
            "apiserver",
            "kube-apiserver",
            None,
            &[IpAddr::V4(self.address), IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(first_service)],
            &[
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
            ],
        )?;
        let (private, public) = &self.service_account_keys;
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        let mut flags = vec![
            format!("--etcd-servers=unix://{}", self.directory.join("etcd.sock").display()),
            format!("--bind-address={}", self.address),
            format!("--secure-port={}", self.port),
            format!("--service-cluster-ip-range={services}"),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--allow-privileged=true".into(),
            "--enable-aggregator-routing=true".into(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            file("service-account-signing-key-file", private),
            file("service-account-key-file", public),
            file("client-ca-file", self.authority.certificate()),
            file("tls-cert-file", &serving.certificate),
            file("tls-private-key-file", &serving.key),
            file("kubelet-certificate-authority", self.authority.certificate()),
            file("kubelet-client-certificate", &kubelet_client.certificate),
            file("kubelet-client-key", &kubelet_client.key),
            file("requestheader-client-ca-file", self.front_proxy.certificate()),
            "--requestheader-allowed-names=front-proxy-client".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            file("proxy-client-cert-file", &proxy_client.certificate),
            file("proxy-client-key-file", &proxy_client.key),
        ];
        match self.network {
            Some(_) => flags.push(format!("--advertise-address={}", self.address)),
            // A loopback address cannot be an endpoint, and without real nodes nobody would use it.
            None => flags
                .extend(["--advertise-address=192.0.2.1".into(), "--endpoint-reconciler-type=none".into()]),
        }
        if self.spec.real_nodes > 0 {
            // The host cannot resolve the hostname of a node in a namespace. Clusters without real nodes
            // keep the default, which tries Hostname first, as most clusters do.
            flags.push("--kubelet-preferred-address-types=InternalIP".into());
        }
        if self.audit {
            let policy = self.directory.join("audit-policy.yaml");
            write_private(&policy, AUDIT_POLICY)?;
            flags.push(file("audit-policy-file", &policy));
            flags.push(file("audit-log-path", &self.directory.join("logs").join("audit.log")));
        }
        self.program(Program::KubeApiserver, flags)
    }

    pub(crate) fn controller_manager(&self) -> Result<Launch, Error> {
        let kubeconfig =
            self.component_kubeconfig("controller-manager", "system:kube-controller-manager", None)?;
        let kubeconfig = kubeconfig.display();
        self.program(
            Program::KubeControllerManager,
            vec![
                format!("--kubeconfig={kubeconfig}"),
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
                format!("--root-ca-file={}", self.authority.certificate().display()),
                format!("--cluster-signing-cert-file={}", self.authority.certificate().display()),
                format!("--cluster-signing-key-file={}", self.authority.key().display()),
                format!("--service-account-private-key-file={}", self.service_account_keys.0.display()),
                "--use-service-account-credentials=true".into(),
                // Alone, so no election; and no port that could be taken.
                "--leader-elect=false".into(),
                "--secure-port=0".into(),
                CLIENT_QPS.into(),
                CLIENT_BURST.into(),
            ],
        )
    }

    pub(crate) fn scheduler(&self) -> Result<Launch, Error> {
        let kubeconfig = self.component_kubeconfig("scheduler", "system:kube-scheduler", None)?;
        let kubeconfig = kubeconfig.display();
        self.program(
            Program::KubeScheduler,
            vec![
                format!("--kubeconfig={kubeconfig}"),
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
                "--leader-elect=false".into(),
                "--secure-port=0".into(),
                CLIENT_QPS.into(),
                CLIENT_BURST.into(),
            ],
        )
    }

    pub(crate) fn kwok(&self, pods: &str) -> Result<Launch, Error> {
        let kubeconfig = self.component_kubeconfig("kwok", "kwok", Some("system:masters"))?;
        let stages = self.directory.join("kwok.yaml");
        write_private(&stages, crate::sim::STAGES)?;
        self.program(
            Program::Kwok,
            vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--config={}", stages.display()),
                format!("--manage-nodes-with-annotation-selector={}", crate::sim::SELECTOR),
                "--node-lease-duration-seconds=40".into(),
                format!("--cidr={pods}"),
            ],
        )
    }

    pub(crate) fn core_dns(&self, plan: Plan) -> Result<Launch, Error> {
        let kubeconfig = self.component_kubeconfig("coredns", "coredns", Some("system:masters"))?;
        let corefile = self.directory.join("Corefile");
        let text = format!(
            "cluster.local in-addr.arpa {{\n    bind {}\n    errors\n    kubernetes cluster.local in-addr.arpa {{\n        kubeconfig {}\n        pods insecure\n        ttl 5\n    }}\n}}\n",
            plan.api_server(self.index),
            kubeconfig.display()
        );
        write_private(&corefile, &text)?;
        self.program(Program::Coredns, vec!["-conf".into(), corefile.display().to_string()])
    }

    pub(crate) fn metrics_server(&self) -> Result<Launch, Error> {
        let kubeconfig = self.component_kubeconfig("metrics-server", metrics_server::USER, None)?;
        let kubeconfig = kubeconfig.display();
        let serving = self.authority.server(
            "metrics-server-serving",
            metrics_server::USER,
            None,
            &[IpAddr::V4(self.address)],
            &[metrics_server::HOST],
        )?;
        self.program(
            Program::MetricsServer,
            vec![
                format!("--kubeconfig={kubeconfig}"),
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
                format!("--bind-address={}", self.address),
                format!("--secure-port={}", metrics_server::PORT),
                format!("--tls-cert-file={}", serving.certificate.display()),
                format!("--tls-private-key-file={}", serving.key.display()),
                // Faults of a kubelet's certificate show, as they do where people run it.
                format!("--kubelet-certificate-authority={}", self.authority.certificate().display()),
                "--kubelet-preferred-address-types=InternalIP".into(),
                "--kubelet-use-node-status-port".into(),
                // The least that it takes: two looks make a figure. It wants to have given up on a kubelet before it looks again.
                "--metric-resolution=10s".into(),
                "--kubelet-request-timeout=8s".into(),
            ],
        )
    }
}

/// Who did what to which object, without the bodies.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";
