//! Everything installed as the documentation says, on real nodes: components in pods with exactly what is shipped, and people who use pods on
//! virtual nodes with the kubectl that they have.

#![allow(clippy::print_stdout, reason = "figures, for whoever asks for them with --nocapture")]

mod figures;
mod followers;
mod home;
mod kubectl;
mod much;
mod streams;
mod terminal;
mod trouble;

use kubeocean_sandbox::Spec;

use crate::support::real_nodes;
use home::Home;
use much::Much;

#[tokio::test]
async fn pods_on_virtual_nodes_are_used_as_if_they_were_local() {
    if !real_nodes() {
        return;
    }
    let spec = Spec::new().workers(1, 0, 1).computing_nodes(0, 1);
    let home = Home::new(figures::measured(streams::splitting(spec))).await;
    home.bind().await;
    figures::prepare(&home);
    streams::prepare(&home).await;
    let much = Much::new();
    tokio::join!(
        figures::use_is_shown_and_scaled_by(&home),
        streams::logs_are_read(&home),
        streams::commands_run(&home),
        streams::every_container_is_reached(&home),
        streams::a_container_that_prepares_is_reached_while_it_does(&home),
        streams::a_running_program_is_joined(&home),
        streams::files_are_copied_both_ways(&home, &much),
        streams::ports_are_forwarded(&home, &much),
        terminal::a_terminal_is_one_and_changes_its_size(&home),
    );
    drop(much);
    trouble::what_is_not_there_is_told_as_a_kubelet_tells_it(&home).await;
    followers::many_follow_what_grows_and_nothing_is_left_of_who_goes(&home).await;
    trouble::what_is_left_of_who_is_killed_is_nothing(&home).await;
    trouble::a_worker_that_restarts_ends_streams_and_serves_new_ones(&home).await;
    home.leave().await;
}
