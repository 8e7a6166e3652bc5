//! Programs that die, freeze and come back; networks that fail.

use std::time::Duration;

use kubeocean_sandbox::lab::Program;
use kubeocean_sandbox::{Error, Sandbox, Spec};

use crate::support::eventually;

/// Asks the API server something, and gives it two seconds.
async fn answers(client: &kube::Client) -> Result<(), String> {
    match tokio::time::timeout(Duration::from_secs(2), client.apiserver_version()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("silence".to_owned()),
    }
}

#[tokio::test]
async fn each_program_can_be_paused_killed_stopped_and_started_again() {
    let sandbox = Sandbox::start(Spec::new().workers(1, 1, 0)).await.unwrap();
    let cluster = sandbox.cluster("worker-1").unwrap();
    let client = cluster.client().await.unwrap();
    let api_server = cluster.program(Program::KubeApiserver);

    api_server.pause().await.unwrap();
    assert_eq!(answers(&client).await, Err("silence".into()));
    api_server.resume().await.unwrap();
    eventually("the resumed API server", async || answers(&client).await).await;

    api_server.kill().await.unwrap();
    assert!(answers(&client).await.is_err());
    api_server.start().await.unwrap();
    eventually("the restarted API server", async || answers(&client).await).await;

    for program in [Program::Etcd, Program::KubeControllerManager, Program::KubeScheduler, Program::Kwok] {
        let program = cluster.program(program);
        program.stop().await.unwrap();
        program.start().await.unwrap();
        // One that runs is left alone.
        program.start().await.unwrap();
    }
    eventually("the cluster after all restarts", async || answers(&client).await).await;
    assert_eq!(
        sandbox.died().await.unwrap(),
        Vec::<String>::new(),
        "what was stopped on request did not die"
    );

    let unknown = cluster.program("kube-nothing").kill().await.unwrap_err();
    assert!(unknown.to_string().contains("it has etcd, kube-apiserver"), "{unknown}");
    sandbox.stop().await.unwrap();
}

#[tokio::test]
async fn a_program_that_dies_by_itself_is_told_with_its_last_words() {
    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let state = kubeocean_sandbox::registry::find(sandbox.name()).unwrap().state.unwrap();
    let scheduler = state.cluster("computing").unwrap().program("kube-scheduler").unwrap();
    let pid = i32::try_from(scheduler.process.pid).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let told = eventually("the death of the scheduler", async || {
        let died = sandbox.died().await.unwrap();
        if died.is_empty() { Err("nobody died") } else { Ok(died) }
    })
    .await;
    assert!(told[0].contains("kube-scheduler of computing ended"), "{told:?}");
    assert!(told[0].contains("SIGKILL"), "{told:?}");
    sandbox.stop().await.unwrap();
}

#[tokio::test]
async fn a_link_is_cut_and_healed_while_the_api_server_is_well() {
    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let cluster = sandbox.cluster("computing").unwrap();
    let direct = cluster.client().await.unwrap();
    let link = cluster.link().await.unwrap();
    let through = client_of(link.kubeconfig()).await;
    answers(&through).await.unwrap();

    link.cut_silently();
    assert_eq!(answers(&through).await, Err("silence".into()));
    answers(&direct).await.unwrap();
    link.heal();
    eventually("the healed link", async || answers(&through).await).await;

    link.cut_with_reset();
    let failure = answers(&through).await.unwrap_err();
    assert_ne!(failure, "silence", "a reset is told at once");
    answers(&direct).await.unwrap();
    link.heal();
    eventually("the healed link", async || answers(&through).await).await;
    sandbox.stop().await.unwrap();
}

async fn client_of(kubeconfig: &str) -> kube::Client {
    let parsed = kube::config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(parsed, &kube::config::KubeConfigOptions::default())
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_port_that_is_taken_is_not_insisted_on() {
    let thief = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = thief.local_addr().unwrap().port();
    let (tell, told) = std::sync::mpsc::channel();
    let report = Box::new(move |progress: kubeocean_sandbox::Progress<'_>| {
        if let kubeocean_sandbox::Progress::PortTaken { port, .. } = progress {
            let _ = tell.send(port);
        }
    });
    let spec = Spec::new().first_api_port(Some(port));
    let sandbox = Sandbox::start_with(spec, report, std::future::pending()).await.unwrap();
    assert_eq!(told.try_recv(), Ok(port), "the reader learns that the port was taken");
    let client = sandbox.cluster("computing").unwrap().client().await.unwrap();
    answers(&client).await.unwrap();
    sandbox.stop().await.unwrap();
}

#[tokio::test]
async fn flags_of_a_spec_reach_their_program() {
    let manager = "kube-controller-manager";
    let spec = Spec::new().computing_nodes(1, 0);
    let spec = spec.extra_arg("computing", manager, "--allocate-node-cidrs=true");
    let spec = spec.extra_arg("computing", manager, "--cluster-cidr=10.0.0.0/16");
    let sandbox = Sandbox::start(spec).await.unwrap();
    let client = sandbox.cluster("computing").unwrap().client().await.unwrap();
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(client);
    eventually("a range of pod addresses for the node", async || {
        let range = nodes.get("sim-1").await.unwrap().spec.unwrap().pod_cidr;
        range.filter(|range| range.starts_with("10.0.")).ok_or("none yet")
    })
    .await;
    sandbox.stop().await.unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_start_is_told_with_its_last_words() {
    let spec = Spec::new().extra_arg("computing", "kube-scheduler", "--no-such-flag");
    let spec = spec.extra_arg("computing", "kube-apiserver", "--also-no-such-flag");
    let outcome = Sandbox::start(spec).await;
    let Err(Error::ProgramDied { program, tail, .. }) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(program, "kube-apiserver");
    assert!(tail.contains("unknown flag: --also-no-such-flag"), "{tail}");
}
