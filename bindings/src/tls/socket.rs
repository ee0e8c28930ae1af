//! Encrypted bytes between a connection and its socket, as many as the socket gives or takes at once.

#![allow(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, RawFd};

/// The most plain bytes that are encrypted before they are sent: they stay in the cache.
pub const SEND: usize = 1 << 16;
/// The most bytes that are received before they are decrypted.
const RECEIVE: usize = 1 << 17;
/// Room for the headers and tags of records, and messages of TLS itself.
const OVERHEAD: usize = 1 << 12;
/// How often a call receives. Records may be empty: without a bound a peer could keep it from ending.
pub const LOOKS: usize = 32;
/// The error number of a descriptor that is closed.
const CLOSED: i32 = 9;

/// Runs `work` on a socket that does not wait and that the caller keeps open meanwhile.
pub fn with_socket<T>(
    number: RawFd,
    work: impl FnOnce(&TcpStream) -> io::Result<T>,
) -> io::Result<T> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(CLOSED));
    }
    // SAFETY: the descriptor is open until `work` ends, and is not closed here.
    let socket = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(number) });
    work(&socket)
}

/// Repeats a call that a signal has interrupted; None if the socket is not ready.
fn at_once(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            ended => return ended.map(Some),
        }
    }
}

/// Encrypted bytes that the socket has not taken: they come before all others.
#[derive(Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    end: usize,
}

impl Outgoing {
    /// Sends what the socket takes; returns whether nothing is left.
    pub fn send(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
        while self.sent < self.end {
            match at_once(|| socket.write(&self.bytes[self.sent..self.end]))? {
                Some(count) => self.sent += count,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Replaces the bytes, all of which are sent, by those that `encrypt` writes.
    pub fn refill<E>(
        &mut self,
        encrypt: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.bytes.resize(SEND + OVERHEAD, 0);
        (self.sent, self.end) = (0, 0);
        self.end = encrypt(&mut self.bytes)?;
        Ok(())
    }
}

/// Received bytes that are not yet decrypted.
#[derive(Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    /// Appends bytes that came before the first call, fewer than there is room for.
    pub fn begin(&mut self, unread: &[u8]) {
        self.bytes.resize(RECEIVE, 0);
        self.bytes[self.end..self.end + unread.len()].copy_from_slice(unread);
        self.end += unread.len();
    }

    /// Tells whether `begin` was called.
    pub fn has_begun(&self) -> bool {
        !self.bytes.is_empty()
    }

    pub fn waiting(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Removes bytes from the front.
    pub fn take(&mut self, count: usize) {
        self.start += count;
    }

    /// Receives further bytes after those that wait; returns how many, None if none is there.
    pub fn receive(&mut self, mut socket: &TcpStream) -> io::Result<Option<usize>> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let came = at_once(|| socket.read(&mut self.bytes[self.end..]))?;
        self.end += came.unwrap_or(0);
        Ok(came)
    }
}
