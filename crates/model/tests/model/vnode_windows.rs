//! What short windows, and those of the borrower, mean for a virtual node and its pods, as people read it: `tests/scripts/vnode-windows.txt`.
//! Written as `vnode.txt` is.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::vnode::{Life, pod, policy};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/vnode-windows.txt");

fn tolerant() -> Value {
    let toleration = json!({"key": "kubeocean.io/out-of-time-windows", "operator": "Equal", "value": "true", "effect": "NoExecute"});
    pod("tolerant", &json!({"spec": {"tolerations": [toleration]}}))
}

/// From noon to twelve minutes past: the last minute is included.
fn short(force: bool) -> Value {
    json!({
        "timeWindows": [{"start": "12:00", "end": "12:11"}], "forceReclaim": force, "gracefulReclaimPeriodSeconds": 60,
    })
}

fn at(life: &mut Life, time: &str, title: &str) {
    life.now = format!("2026-11-20T{time}Z").parse().unwrap();
    life.step(title);
}

fn a_short_window(life: &mut Life) {
    life.policies = vec![policy(short(true))];
    life.step("leased for twelve minutes: nothing new comes in the second half of them");
    at(life, "12:05:59", "almost half of them are over");
    at(life, "12:06:00", "half of them are over");
    at(life, "12:12:00", "all of them are over");
    life.policies = vec![policy(short(false))];
    at(life, "12:00:00", "the same from noon on without forceReclaim");
    at(life, "12:06:00", "half of it is over: what runs there may stay, so new ones may come");
    at(life, "12:12:00", "it is over");
}

fn the_borrowers_window(life: &mut Life) {
    life.is_served = false;
    life.computing = vec![policy(short(true))];
    life.pods = vec![pod("plain", &json!({})), tolerant()];
    life.step("the lender knows no policies, and the borrower has windows");
    at(life, "12:12:00", "the borrower's window closes");
    life.pod("a pod is told", &pod("plain", &json!({})), false);
    life.pod("one that tolerates closed windows is not", &tolerant(), false);
    at(life, "12:13:00", "its grace is over");
    life.pod("a pod is removed", &pod("plain", &json!({})), false);
    life.pod("one that tolerates closed windows stays", &tolerant(), false);
    life.computing.clear();
    life.step("the borrower withdraws the policy");
    life.pod("now it is told, whatever it tolerates", &tolerant(), false);
    life.wait(60);
    life.step("a minute later");
    life.pod("and removed", &tolerant(), false);
}

fn both_windows(life: &mut Life) {
    let mut longer = short(true);
    longer["gracefulReclaimPeriodSeconds"] = 120.into();
    life.policies = vec![policy(longer)];
    life.computing = vec![policy(short(true))];
    life.pods = vec![pod("plain", &json!({})), tolerant()];
    life.step("both have the same windows, and the lender gives more time");
    at(life, "12:12:00", "both close");
    life.pod("a pod has the borrower's time", &pod("plain", &json!({})), false);
    life.pod("one that tolerates closed windows has the lender's, and not more", &tolerant(), false);
    at(life, "12:14:00", "the lender's time is up");
    life.pod("it is removed, whatever it tolerates", &tolerant(), false);
}

type Story = fn(&mut Life);

#[test]
fn short_windows_and_the_borrowers_are_what_people_have_read() {
    let mut text = String::new();
    let stories: [(&str, Story); 3] = [
        ("a short window", a_short_window),
        ("the borrower's window", the_borrowers_window),
        ("windows of both", both_windows),
    ];
    for (title, story) in stories {
        let mut life = Life::new();
        story(&mut life);
        writeln!(text, "=== {title}\n\n{}", life.text).unwrap();
    }
    crate::is_golden(GOLDEN, &text);
}
