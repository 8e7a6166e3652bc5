//! Where to listen, written as Go programs have it.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections that wait to be accepted. Probes and scrapers are few.
const BACKLOG: i32 = 128;

/// `0`, `:8080`, `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// `0`: do not listen.
    Disabled,
    /// `:8080`: on every interface, IPv4 and, where the machine has it, IPv6.
    Everywhere(u16),
    /// One host and port. Names are looked up when it is bound.
    At(String),
}

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no address: use :8080, 127.0.0.1:8080, [::1]:8080, or 0 for none");
        if text == "0" {
            return Ok(Self::Disabled);
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        if host.is_empty() {
            return Ok(Self::Everywhere(port));
        }
        // `::1:8080` is an address without a port.
        let bare = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        if bare || host.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(Self::At(text.to_owned()))
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("0"),
            Self::Everywhere(port) => write!(f, ":{port}"),
            Self::At(address) => f.write_str(address),
        }
    }
}

impl BindAddress {
    /// `None` if it is disabled.
    pub(super) async fn bind(&self) -> io::Result<Option<TcpListener>> {
        match self {
            Self::Disabled => Ok(None),
            Self::At(address) => TcpListener::bind(address).await.map(Some),
            Self::Everywhere(port) => match listen((Ipv6Addr::UNSPECIFIED, *port).into()) {
                // Not a taken port or a missing right: the machine has no IPv6.
                Err(error)
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
                    ) =>
                {
                    listen((Ipv4Addr::UNSPECIFIED, *port).into()).map(Some)
                }
                both => both.map(Some),
            },
        }
    }
}

/// One socket for both families, also where `net.ipv6.bindv6only` is set.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // As std and tokio do it: a restart need not wait for connections of the process before.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn addresses_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", BindAddress::Disabled),
            (":8080", BindAddress::Everywhere(8080)),
            ("127.0.0.1:8080", BindAddress::At("127.0.0.1:8080".to_owned())),
            ("[::1]:8080", BindAddress::At("[::1]:8080".to_owned())),
            ("localhost:8080", BindAddress::At("localhost:8080".to_owned())),
        ] {
            let parsed: BindAddress = text.parse().unwrap();
            assert_eq!(parsed, expected);
            assert_eq!(parsed.to_string(), text);
        }
        for wrong in ["", "8080", "::1:8080", ":http", ":70000", "a b:1"] {
            assert!(wrong.parse::<BindAddress>().unwrap_err().contains("or 0 for none"), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_lone_port_answers_on_every_family_there_is() {
        let listener = BindAddress::Everywhere(0).bind().await.unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.unwrap();
        }
    }
}
