//! Certificates that fit, and those that do not.

use jiff::SignedDuration;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::certified::{Certified, Unfit};
use super::*;

fn made(key: &KeyPair) -> String {
    CertificateParams::new(vec!["10.1.2.3".to_owned()]).unwrap().self_signed(key).unwrap().pem()
}

fn der(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

#[test]
fn a_key_of_another_certificate_and_what_is_none_are_refused() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (chain, now) = (made(&key), Timestamp::now());
    assert!(Certified::fit(chain.as_bytes(), der(&key), now).is_ok());
    assert_eq!(Certified::fit(chain.as_bytes(), der(&other), now).err(), Some(Unfit::KeyMismatch));
    assert_eq!(Certified::fit(b"nonsense", der(&key), now).err(), Some(Unfit::Unreadable));
    assert_eq!(Certified::key_of(b"nonsense").err(), Some(Unfit::UnreadableKey));
    let late = Timestamp::MAX;
    assert!(matches!(Certified::fit(chain.as_bytes(), der(&key), late).err(), Some(Unfit::Expired(_))));
}

#[test]
fn a_certificate_is_renewed_in_the_last_part_of_its_life() {
    let (key, now) = (KeyPair::generate().unwrap(), Timestamp::now());
    let certified = Certified::fit(made(&key).as_bytes(), der(&key), now).unwrap();
    let life = certified.ends.duration_since(now).as_secs_f64();
    let part = certified.renew_at.duration_since(now).as_secs_f64() / life;
    assert!((0.7..=0.9).contains(&part), "{part}");
}

#[test]
fn who_has_no_certificate_or_an_old_one_is_not_ready_and_says_why() {
    let clock = Clock::system();
    let serving = Serving::new(&clock);
    serving.lacks("nobody approves");
    assert_eq!(serving.is_ready().unwrap_err(), "there is no serving certificate: nobody approves");
    assert!(serving.current().is_none());
    let key = KeyPair::generate().unwrap();
    let mut certified = Certified::fit(made(&key).as_bytes(), der(&key), clock.now()).unwrap();
    certified.ends = clock.now().checked_sub(SignedDuration::from_secs(1)).unwrap();
    serving.install(certified);
    serving.lacks("nobody signs");
    assert!(serving.is_ready().unwrap_err().ends_with("nobody signs"));
    assert!(serving.current().is_some(), "whoever calls says so better");
}

#[test]
fn no_key_is_ever_shown() {
    let key = KeyPair::generate().unwrap();
    let serving = Serving::new(&Clock::system());
    serving.install(Certified::fit(made(&key).as_bytes(), der(&key), Timestamp::now()).unwrap());
    let shown = format!("{serving:?} {:?}", serving.resolver());
    assert!(shown.len() < 100, "{shown}");
}
