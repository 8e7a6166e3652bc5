//! However a sandbox ends, nothing of it stays.

use kubeocean_sandbox::{Error, Progress, Sandbox, Spec, leftovers, registry};

use crate::support::nothing_left_of;

fn names() -> Vec<String> {
    registry::list().unwrap().into_iter().map(|entry| entry.name).collect()
}

#[tokio::test]
async fn a_stopped_sandbox_leaves_nothing_and_its_handles_say_so() {
    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let name = sandbox.name().to_owned();
    assert!(names().contains(&name));
    assert!(!leftovers(&name).is_empty(), "a running sandbox is seen");
    let computing = sandbox.cluster("computing").unwrap().clone();
    sandbox.stop().await.unwrap();
    assert_eq!(leftovers(&name), Vec::<String>::new());
    assert!(!names().contains(&name));
    let late = computing.program("kube-scheduler").kill().await;
    assert!(matches!(late, Err(Error::Ended)), "{late:?}");
}

#[tokio::test]
async fn a_panic_ends_the_sandbox_too() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let test = tokio::spawn(async move {
        let sandbox = Sandbox::start(Spec::new()).await.unwrap();
        tell.send(sandbox.name().to_owned()).unwrap();
        panic!("as a test does that fails (this panic is wanted)");
    });
    let name = told.await.unwrap();
    assert!(test.await.unwrap_err().is_panic());
    nothing_left_of(&name).await;
}

#[tokio::test]
async fn giving_up_while_it_starts_leaves_nothing() {
    let name = format!("g{}", std::process::id());
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut tell = Some(tell);
    // The first control plane that is ready is the signal to give up on the others.
    let report = Box::new(move |progress: Progress<'_>| {
        if let (Progress::ControlPlaneReady { .. }, Some(tell)) = (progress, tell.take()) {
            let _ = tell.send(());
        }
    });
    let spec = Spec::new().named(&name).workers(2, 0, 0);
    let outcome = Sandbox::start_with(spec, report, async { told.await.unwrap_or_default() }).await;
    assert!(matches!(outcome, Err(Error::GivenUp)), "{outcome:?}");
    assert_eq!(leftovers(&name), Vec::<String>::new());
}

#[tokio::test]
async fn a_dropped_start_leaves_nothing() {
    let name = format!("d{}", std::process::id());
    let start = Sandbox::start(Spec::new().named(&name));
    let dropped = tokio::time::timeout(std::time::Duration::from_millis(1500), start).await;
    assert!(dropped.is_err(), "no control plane is that fast");
    nothing_left_of(&name).await;
}

#[tokio::test]
async fn a_name_that_is_up_is_refused_and_the_first_one_is_not_disturbed() {
    let first = Sandbox::start(Spec::new()).await.unwrap();
    let name = first.name().to_owned();
    let second = Sandbox::start(Spec::new().named(&name)).await;
    let Err(Error::AlreadyUp { .. }) = second else { panic!("{second:?}") };
    let client = first.cluster("computing").unwrap().client().await.unwrap();
    client.apiserver_version().await.unwrap();
    first.stop().await.unwrap();
    // The name is free again at once.
    Sandbox::start(Spec::new().named(&name)).await.unwrap().stop().await.unwrap();
}
