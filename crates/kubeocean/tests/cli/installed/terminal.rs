//! A person at a terminal: `kubectl exec -it`.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::home::Home;
use crate::access::until;

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

pub(super) async fn a_terminal_is_one_and_changes_its_size(home: &Home) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let other_end = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    tcsetwinsize(terminal.as_fd(), size(33, 101)).unwrap();
    let kubectl = home.computing().kubectl();
    let end = || Stdio::from(other_end.try_clone().unwrap());
    // With a terminal of its own, so that it hears of changes of its size.
    let mut child = Command::new("setsid")
        .args(["--ctty", "--wait"])
        .arg(kubectl.as_std().get_program())
        .args(kubectl.as_std().get_args())
        .args(["exec", "-it", "app", "-c", "c", "--", "sh"])
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    drop(other_end);
    let mut typed = std::fs::File::from(terminal.try_clone().unwrap());
    let mut output = std::fs::File::from(terminal.try_clone().unwrap());
    let screen = Arc::new(Mutex::new(String::new()));
    let onto = Arc::clone(&screen);
    let reads = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut bytes) {
            onto.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    });
    let shows = async |words: &str| {
        until(&format!("the terminal shows {words:?}"), async || {
            let screen = screen.lock().unwrap().clone();
            if screen.contains(words) { Ok(()) } else { Err(screen) }
        })
        .await;
    };
    shows("# ").await;
    typed.write_all(b"tty; stty size\n").unwrap();
    shows("/dev/pts/").await;
    shows("33 101").await;
    tcsetwinsize(terminal.as_fd(), size(44, 77)).unwrap();
    until("the container hears of the new size", async || {
        typed.write_all(b"stty size\n").unwrap();
        let screen = screen.lock().unwrap().clone();
        if screen.contains("44 77") { Ok(()) } else { Err(screen) }
    })
    .await;
    typed.write_all(b"exit 9\n").unwrap();
    let code = until("the shell ends", async || {
        child.try_wait().unwrap().ok_or_else(|| screen.lock().unwrap().clone())
    })
    .await;
    assert_eq!(code.code(), Some(9));
    drop((typed, terminal));
    reads.join().unwrap();
}
