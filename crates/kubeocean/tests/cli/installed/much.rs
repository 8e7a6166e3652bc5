//! Bytes that do not repeat, as many as are wanted, on a disk and not in memory.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// What is sent through in the test of every day; `KUBEOCEAN_STREAM_MIB=1024` is for the day on which it matters.
const MEBIBYTES: usize = 24;

/// From here on it is measured, and done by fewer.
const LARGE: usize = 256;

/// Who sends less than a mebibyte in a second hangs.
const EACH_WITHIN: Duration = Duration::from_secs(1);
const ANY_WITHIN: Duration = Duration::from_secs(120);

pub(super) struct Much {
    directory: TempDir,
    mebibytes: usize,
    pub(super) hash: String,
}

impl Much {
    pub(super) fn new() -> Self {
        let wanted = std::env::var("KUBEOCEAN_STREAM_MIB").ok().and_then(|text| text.parse().ok());
        let mebibytes = wanted.unwrap_or(MEBIBYTES);
        let directory = tempfile::tempdir().unwrap();
        let mut much = Self { directory, mebibytes, hash: String::new() };
        let mut file = BufWriter::new(File::create(much.path()).unwrap());
        let mut sum = Sha256::new();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut mebibyte = Vec::with_capacity(1 << 20);
        for _ in 0..mebibytes {
            mebibyte.clear();
            while mebibyte.len() < 1 << 20 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                mebibyte.extend_from_slice(&state.to_le_bytes());
            }
            sum.update(&mebibyte);
            file.write_all(&mebibyte).unwrap();
        }
        file.flush().unwrap();
        much.hash = hex(sum);
        much
    }

    pub(super) fn path(&self) -> PathBuf {
        self.beside("much")
    }

    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn file(&self) -> File {
        File::open(self.path()).unwrap()
    }

    pub(super) fn is_large(&self) -> bool {
        self.mebibytes >= LARGE
    }

    /// How long it may take to send it once.
    pub(super) fn within(&self) -> Duration {
        ANY_WITHIN + EACH_WITHIN * u32::try_from(self.mebibytes).unwrap()
    }

    /// Figures, where there is enough of it for them to mean something.
    pub(super) fn tell(&self, what: &str, began: Instant) {
        if self.is_large() {
            let mebibytes = f64::from(u32::try_from(self.mebibytes).unwrap());
            let seconds = began.elapsed().as_secs_f64();
            println!("{what}: {mebibytes} MiB in {seconds:.1} s, {:.0} MiB/s", mebibytes / seconds);
        }
    }
}

fn hex(sum: Sha256) -> String {
    sum.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Of everything that is left to read.
pub(super) fn hash(mut from: impl Read) -> String {
    let mut sum = Sha256::new();
    let mut bytes = vec![0; 1 << 20];
    loop {
        match from.read(&mut bytes).unwrap() {
            0 => return hex(sum),
            read => sum.update(&bytes[..read]),
        }
    }
}

pub(super) fn hash_of(path: &Path) -> String {
    hash(File::open(path).unwrap())
}
