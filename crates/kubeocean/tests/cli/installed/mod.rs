//! Everything installed as the documentation says, on real nodes: components in pods with exactly what is shipped, and people who use pods on
//! virtual nodes with the kubectl that they have.

mod home;
mod streams;
mod terminal;
mod trouble;

use kubeocean_sandbox::Spec;

use crate::support::real_nodes;
use home::Home;

#[tokio::test]
async fn pods_on_virtual_nodes_are_used_as_if_they_were_local() {
    if !real_nodes() {
        return;
    }
    let home = Home::new(Spec::new().workers(1, 0, 1).computing_nodes(0, 1)).await;
    home.bind().await;
    streams::prepare(&home).await;
    tokio::join!(
        streams::logs_are_read(&home),
        streams::previous_logs_are_read(&home),
        streams::commands_run(&home),
        streams::every_container_is_reached(&home),
        streams::a_running_program_is_joined(&home),
        streams::files_are_copied_both_ways(&home),
        streams::ports_are_forwarded(&home),
        terminal::a_terminal_is_one_and_changes_its_size(&home),
    );
    trouble::what_is_not_there_is_told_as_a_kubelet_tells_it(&home).await;
    trouble::many_follow_at_once_and_nothing_is_left_of_who_goes(&home).await;
    trouble::a_worker_that_restarts_ends_streams_and_serves_new_ones(&home).await;
    home.leave().await;
}
