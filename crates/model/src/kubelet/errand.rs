//! What is to be done with a pod, with every option read; and the same in the words of an API server.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{PodRoute, Refusal, Service};
use crate::escape::{escaped, unescaped};
use crate::key::{Key, Physical};

/// Which of a container's streams are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "so many streams does a container have")]
pub struct Streams {
    /// What it reads.
    pub stdin: bool,
    /// What it writes.
    pub stdout: bool,
    /// What it complains.
    pub stderr: bool,
    /// All of them are a terminal.
    pub tty: bool,
}

/// Which of the two streams a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Both.
    All,
    /// What the container wrote.
    Stdout,
    /// What it complained.
    Stderr,
}

/// Which part of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Also what is yet to be written.
    pub follow: bool,
    /// Of the container's run before.
    pub previous: bool,
    /// With the time of each line.
    pub timestamps: bool,
    /// Not older than so many seconds.
    pub since_seconds: Option<u64>,
    /// Not older than this.
    pub since_time: Option<Timestamp>,
    /// So many lines at the end.
    pub tail_lines: Option<u64>,
    /// So many bytes.
    pub limit_bytes: Option<u64>,
    /// Of which stream; where none is named, of both.
    pub stream: Option<LogStream>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Read a log.
    Logs {
        /// Of which container.
        container: String,
        /// Which part.
        options: LogOptions,
    },
    /// Run a command.
    Exec {
        /// In which container.
        container: String,
        /// Connected to what.
        streams: Streams,
        /// And its arguments.
        command: Vec<String>,
    },
    /// Connect to what runs.
    Attach {
        /// In which container.
        container: String,
        /// To which streams.
        streams: Streams,
    },
    /// Connect to ports. SPDY names them later, stream by stream.
    PortForward {
        /// Those that were named.
        ports: Vec<u16>,
    },
}

impl Errand {
    /// Reads the options of a call. What a kubelet does not know it passes over; so do we.
    pub fn read(route: &PodRoute, query: &str) -> Result<Self, Refusal> {
        let query = Query::read(query)?;
        let container = route.container.clone().unwrap_or_default();
        Ok(match route.service {
            Service::Logs => Self::Logs { container, options: query.log_options()? },
            Service::Exec => Self::Exec { container, streams: query.streams()?, command: query.command()? },
            Service::Attach => Self::Attach { container, streams: query.streams()? },
            Service::PortForward => Self::PortForward { ports: query.ports()? },
        })
    }

    /// The path and query of the same errand at the API server of the worker cluster.
    pub fn at(&self, twin: &Key<Physical>) -> String {
        let service = match self {
            Self::Logs { .. } => Service::Logs,
            Self::Exec { .. } => Service::Exec,
            Self::Attach { .. } => Service::Attach,
            Self::PortForward { .. } => Service::PortForward,
        };
        let (namespace, name) = (escaped(&twin.namespace), escaped(&twin.name));
        let mut said =
            Said(format!("/api/v1/namespaces/{namespace}/pods/{name}/{}", service.subresource()), '?');
        match self {
            Self::Logs { container, options } => {
                said.say("container", container);
                options.say(&mut said);
            }
            Self::Exec { container, streams, command } => {
                said.say("container", container);
                streams.say(&mut said);
                for word in command {
                    said.say("command", word);
                }
            }
            Self::Attach { container, streams } => {
                said.say("container", container);
                streams.say(&mut said);
            }
            Self::PortForward { ports } => {
                for port in ports {
                    said.say("ports", &port.to_string());
                }
            }
        }
        said.0
    }
}

/// A path and the query behind it, as far as it was said.
struct Said(String, char);

impl Said {
    fn say(&mut self, name: &str, value: &str) {
        // A String takes everything.
        let _ = write!(self.0, "{}{name}={}", self.1, escaped(value));
        self.1 = '&';
    }

    fn say_if(&mut self, name: &str, is_so: bool) {
        if is_so {
            self.say(name, "true");
        }
    }
}

impl Streams {
    fn say(self, said: &mut Said) {
        said.say_if("stdin", self.stdin);
        said.say_if("stdout", self.stdout);
        said.say_if("stderr", self.stderr);
        said.say_if("tty", self.tty);
    }
}

impl LogOptions {
    fn say(&self, said: &mut Said) {
        said.say_if("follow", self.follow);
        said.say_if("previous", self.previous);
        said.say_if("timestamps", self.timestamps);
        let numbers = [
            ("sinceSeconds", self.since_seconds),
            ("tailLines", self.tail_lines),
            ("limitBytes", self.limit_bytes),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                said.say(name, &number.to_string());
            }
        }
        if let Some(time) = self.since_time {
            said.say("sinceTime", &time.to_string());
        }
        if let Some(stream) = self.stream {
            let word = match stream {
                LogStream::All => "All",
                LogStream::Stdout => "Stdout",
                LogStream::Stderr => "Stderr",
            };
            said.say("stream", word);
        }
    }
}

/// The options of a call, in their order.
struct Query(Vec<(String, String)>);

impl Query {
    fn read(text: &str) -> Result<Self, Refusal> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            // Some take it for another `&`. Whoever means it writes %3B.
            if pair.contains(';') {
                return Err(Refusal::bad_query("Unable to decode query: it has a semicolon; write %3B"));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let pair = unescaped(name).zip(unescaped(value));
            pairs.push(pair.ok_or_else(|| {
                Refusal::bad_query("Unable to decode query: it is not percent-encoded UTF-8")
            })?);
        }
        Ok(Self(pairs))
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// An option that is given once, or not at all: of two, one reader takes the first and another the last.
    fn one(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Refusal::bad_query(format!("Unable to decode query: {name} is given twice"))),
            (value, None) => Ok(value),
        }
    }

    fn switch(&self, name: &str) -> Result<bool, Refusal> {
        match self.one(name)? {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(_) => Err(Refusal::bad_query(format!("Unable to decode query: {name} is true or false"))),
        }
    }

    /// A number, and not less than `least`.
    fn number(&self, name: &str, least: u64) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.one(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        // Servers count these with 63 bits.
        let number = text.parse().ok().filter(|number| is_plain && i64::try_from(*number).is_ok());
        let number: u64 = number.ok_or_else(|| {
            Refusal::bad_query(format!("Unable to decode query: {name} is a whole number, not below {least}"))
        })?;
        if number < least {
            return Err(Refusal::new(422, format!("Invalid request: {name} must not be below {least}")));
        }
        Ok(Some(number))
    }

    fn log_options(&self) -> Result<LogOptions, Refusal> {
        let since_time = match self.one("sinceTime")?.filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => Some(text.parse::<Timestamp>().map_err(|_| {
                Refusal::bad_query("Unable to decode query: sinceTime is a time as in RFC 3339")
            })?),
        };
        let stream = match self.one("stream")?.filter(|text| !text.is_empty()) {
            None => None,
            Some("All") => Some(LogStream::All),
            Some("Stdout") => Some(LogStream::Stdout),
            Some("Stderr") => Some(LogStream::Stderr),
            Some(_) => return Err(Refusal::new(422, "Invalid request: stream is All, Stdout or Stderr")),
        };
        // An old name of it, which kubelets still take.
        let tail = match self.one("tail")? {
            None | Some("" | "all") => self.number("tailLines", 0)?,
            Some(_) => self.number("tail", 0)?,
        };
        let options = LogOptions {
            follow: self.switch("follow")?,
            previous: self.switch("previous")?,
            timestamps: self.switch("timestamps")?,
            since_seconds: self.number("sinceSeconds", 1)?,
            since_time,
            tail_lines: tail,
            limit_bytes: self.number("limitBytes", 1)?,
            stream,
        };
        if options.since_seconds.is_some() && options.since_time.is_some() {
            return Err(Refusal::new(422, "Invalid request: sinceSeconds and sinceTime exclude each other"));
        }
        Ok(options)
    }

    fn streams(&self) -> Result<Streams, Refusal> {
        let tty = self.switch("tty")?;
        let streams = Streams {
            stdin: self.switch("input")?,
            stdout: self.switch("output")?,
            // A terminal has one screen.
            stderr: self.switch("error")? && !tty,
            tty,
        };
        if !(streams.stdin || streams.stdout || streams.stderr) {
            return Err(Refusal::bad_query("you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(streams)
    }

    fn command(&self) -> Result<Vec<String>, Refusal> {
        let command: Vec<String> = self.all("command").map(str::to_owned).collect();
        if command.is_empty() {
            return Err(Refusal::bad_query("you must specify at least 1 command"));
        }
        if command.iter().any(|word| word.contains('\0')) {
            return Err(Refusal::bad_query("a command has no character NUL"));
        }
        Ok(command)
    }

    fn ports(&self) -> Result<Vec<u16>, Refusal> {
        let words = self.all("port").flat_map(|list| list.split(','));
        let port = |word: &str| {
            let number = word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten();
            number.filter(|port| *port > 0).ok_or_else(|| {
                Refusal::bad_query(format!("unable to parse {} as a port", word.escape_default()))
            })
        };
        words.map(port).collect()
    }
}
