//! The file's bytes: a header line, a line for each object, and a last line with the SHA-256 of all before.
//!
//! Reading holds one line at a time, and gives up at the first thing that is wrong. A file that is damaged is called
//! that, whatever the damage made of its words: nothing of it is looked at before the sum is right.

use super::Identity;
use super::line;
use crate::share::NamePool;
use data_encoding::HEXLOWER;
use model::object::{Object, ObjectRef};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

/// The form described here.
const VERSION: u32 = 1;
/// Largest file: some 100,000 services with ten endpoints each.
pub(super) const LARGEST_FILE: u64 = 128 << 20;
/// Longest line: no object is larger than a request to etcd may be (1.5 MiB).
const LONGEST_LINE: u64 = 4 << 20;
/// `sha256 `, 64 digits, and the line's end.
const SUM_LINE: u64 = 7 + 64 + 1;
/// Clocks may differ by this much before a time counts as being in the future.
const CLOCK_SLACK: Duration = Duration::from_mins(5);

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    #[serde(rename = "kubeProxyRsState")]
    version: u32,
    node: String,
    #[serde(flatten)]
    identity: Identity,
    /// When the server last confirmed that this is what there is, RFC 3339.
    confirmed: String,
}

impl Header {
    pub(super) fn new(node: &str, identity: Identity, confirmed: SystemTime) -> Header {
        // A clock before the year -9999 is none.
        let confirmed = jiff::Timestamp::try_from(confirmed).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        Header {
            version: VERSION,
            node: node.to_owned(),
            identity,
            confirmed: confirmed.to_string(),
        }
    }
}

/// Who asks, and when.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    pub(super) node: &'a str,
    pub(super) identity: &'a Identity,
    pub(super) max_age: Duration,
    pub(super) now: SystemTime,
}

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Page {
    pub(super) age: Duration,
    pub(super) objects: Vec<Object>,
}

/// Why a file's content is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is larger than {} MiB", LARGEST_FILE >> 20)]
    TooLarge,
    #[error("is damaged or cut off: its checksum is not right")]
    Damaged,
    #[error("is of form {0}, and this program knows form {VERSION}")]
    OtherForm(u32),
    #[error("does not begin as such a file does")]
    NoHeader,
    #[error("has a line {0} that is no object")]
    NoObject(usize),
    #[error("belongs to node {0:?}")]
    OtherNode(String),
    #[error("belongs to another cluster, with the API server {0} or another CA")]
    OtherCluster(String),
    #[error("was last confirmed at {0}, longer ago than --state-max-age allows")]
    TooOld(jiff::Timestamp),
    #[error("was confirmed at {0}, which is in the future by this host's clock")]
    Future(jiff::Timestamp),
}

/// Writes a file's bytes.
pub(super) fn write<'l>(
    out: &mut impl Write,
    header: &Header,
    lines: impl IntoIterator<Item = &'l [u8]>,
) -> io::Result<()> {
    let mut out = Summing {
        inner: BufWriter::with_capacity(64 << 10, out),
        sum: Sha256::new(),
    };
    out.write_all(&serde_json::to_vec(header)?)?;
    out.write_all(b"\n")?;
    for line in lines {
        out.write_all(line)?;
        out.write_all(b"\n")?;
    }
    let sum = HEXLOWER.encode(&out.sum.finalize());
    writeln!(out.inner, "sha256 {sum}")?;
    out.inner.flush()
}

/// Reads a file's bytes, as far as they are of use to who asks.
pub(super) fn read(file: &mut (impl Read + Seek), reader: &Reader<'_>) -> Result<Page, Refusal> {
    let length = file.seek(SeekFrom::End(0))?;
    if length > LARGEST_FILE {
        return Err(Refusal::TooLarge);
    }
    let body = length.checked_sub(SUM_LINE).ok_or(Refusal::Damaged)?;
    check_sum(file, body)?;
    file.rewind()?;
    let mut lines = BufReader::with_capacity(64 << 10, file.take(body));
    let mut line = Vec::new();
    next_line(&mut lines, &mut line)?;
    let age = check_header(&line, reader)?;
    let mut objects = BTreeMap::<ObjectRef, Object>::new();
    let mut names = NamePool::default();
    let mut number = 1;
    while next_line(&mut lines, &mut line)? {
        number += 1;
        let mut object = line::read(&line).ok_or(Refusal::NoObject(number))?;
        names.share(&mut object);
        objects.insert(object.reference(), object);
    }
    Ok(Page {
        age,
        objects: objects.into_values().collect(),
    })
}

/// The checksum that a file claims to have, which names its content.
pub(super) fn claimed_sum(file: &mut (impl Read + Seek)) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(SUM_LINE)))?;
    let mut sum = String::new();
    file.take(SUM_LINE).read_to_string(&mut sum)?;
    Ok(sum)
}

fn check_sum(file: &mut (impl Read + Seek), body: u64) -> Result<(), Refusal> {
    file.rewind()?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut left = file.take(body);
    loop {
        match left.read(&mut buffer)? {
            0 => break,
            count => sum.update(&buffer[..count]),
        }
    }
    let mut claimed = Vec::new();
    left.into_inner().take(SUM_LINE).read_to_end(&mut claimed)?;
    let right = format!("sha256 {}\n", HEXLOWER.encode(&sum.finalize()));
    if claimed == right.as_bytes() {
        Ok(())
    } else {
        Err(Refusal::Damaged)
    }
}

/// The next line without its end; whether there was one.
fn next_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, Refusal> {
    line.clear();
    let read = lines.take(LONGEST_LINE).read_until(b'\n', line)?;
    match line.pop() {
        None => Ok(false),
        Some(b'\n') => Ok(true),
        Some(_) if read as u64 >= LONGEST_LINE => Err(Refusal::TooLarge),
        Some(_) => Err(Refusal::Damaged),
    }
}

/// Whether the file is of use to who asks, and how old it is.
fn check_header(line: &[u8], reader: &Reader<'_>) -> Result<Duration, Refusal> {
    #[derive(Deserialize)]
    struct Form {
        #[serde(rename = "kubeProxyRsState")]
        version: u32,
    }
    let form: Form = serde_json::from_slice(line).map_err(|_| Refusal::NoHeader)?;
    if form.version != VERSION {
        return Err(Refusal::OtherForm(form.version));
    }
    let header: Header = serde_json::from_slice(line).map_err(|_| Refusal::NoHeader)?;
    if header.node != reader.node {
        return Err(Refusal::OtherNode(header.node));
    }
    if !header.identity.is_same_cluster(reader.identity) {
        return Err(Refusal::OtherCluster(header.identity.server().to_owned()));
    }
    let confirmed: jiff::Timestamp = header.confirmed.parse().map_err(|_| Refusal::NoHeader)?;
    match reader.now.duration_since(SystemTime::from(confirmed)) {
        Ok(age) if age > reader.max_age => Err(Refusal::TooOld(confirmed)),
        Ok(age) => Ok(age),
        Err(ahead) if ahead.duration() > CLOCK_SLACK => Err(Refusal::Future(confirmed)),
        Err(_) => Ok(Duration::ZERO),
    }
}

/// Sums up what is written.
struct Summing<W> {
    inner: W,
    sum: Sha256,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests;
