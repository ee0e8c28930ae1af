//! Encrypted bytes between a connection and its socket, as many as the socket gives or takes at once.

use std::io;
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

/// The most plain bytes that are encrypted before they are sent: they stay in the cache.
pub const SEND: usize = 1 << 16;
/// The most bytes that are received before they are decrypted.
const RECEIVE: usize = 1 << 17;
/// Room for the headers and tags of records, and messages of TLS itself.
const OVERHEAD: usize = 1 << 12;
/// How often a call receives. Records may be empty: without a bound a peer could keep it from ending.
pub const LOOKS: usize = 32;
/// Where the system has no flag for it, Python ignores the signal of a closed connection for the process.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SEND_FLAGS: MsgFlags = MsgFlags::MSG_NOSIGNAL;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SEND_FLAGS: MsgFlags = MsgFlags::empty();

/// Repeats a call that a signal has interrupted; None if the socket is not ready.
fn at_once(mut call: impl FnMut() -> nix::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(count) => return Ok(Some(count)),
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
    pub fn send(&mut self, socket: RawFd) -> io::Result<bool> {
        while self.sent < self.end {
            match at_once(|| send(socket, &self.bytes[self.sent..self.end], SEND_FLAGS))? {
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
        if self.bytes.is_empty() {
            self.bytes = vec![0; SEND + OVERHEAD];
        }
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
        // Pages of zeros: those that are not used are not there.
        self.bytes = vec![0; RECEIVE];
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
    pub fn receive(&mut self, socket: RawFd) -> io::Result<Option<usize>> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let came = at_once(|| recv(socket, &mut self.bytes[self.end..], MsgFlags::empty()))?;
        self.end += came.unwrap_or(0);
        Ok(came)
    }
}
