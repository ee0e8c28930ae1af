//! One end of a TLS connection without its socket: plain and encrypted bytes go through the caller's memory.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedConnectionCommon,
    UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, Error};

/// The most plain bytes of a record.
const RECORD: usize = 1 << 14;
/// The most received bytes that wait during a handshake: ours has 1 KiB, and a stranger may send anything.
const WAITING: usize = 1 << 16;

/// Either end of `rustls`, which has no common name for them.
pub trait End: Send {
    type Data;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn state(&self) -> &CommonState;
}

macro_rules! end {
    ($end:ty, $data:ty) => {
        impl End for $end {
            type Data = $data;

            fn process<'c, 'i>(
                &'c mut self,
                incoming: &'i mut [u8],
            ) -> UnbufferedStatus<'c, 'i, $data> {
                self.process_tls_records(incoming)
            }

            fn state(&self) -> &CommonState {
                let common: &UnbufferedConnectionCommon<$data> = self;
                common
            }
        }
    };
}

end!(UnbufferedClientConnection, ClientConnectionData);
end!(UnbufferedServerConnection, ServerConnectionData);

/// What a connection does for Python, whichever end it is.
pub trait Records: Send {
    /// Continues the handshake; returns whether it is done.
    fn shake(&mut self, received: &[u8]) -> Result<bool, Error>;

    /// Returns bytes that are to be sent: of the handshake, or an alert.
    fn rest(&mut self) -> Vec<u8>;

    /// Returns received bytes that the handshake has left over.
    fn unread(&mut self) -> Vec<u8>;

    /// Returns the certificate that the other end has shown.
    fn certificate(&self) -> Option<Vec<u8>>;

    /// Encrypts the bytes of all buffers to the front of `out`; returns their number.
    fn encrypt(&mut self, buffers: &[&[u8]], out: &mut [u8]) -> Result<usize, Error>;

    /// Decrypts whole records of `received` to the front of `out`; returns how many bytes of each.
    fn decrypt(&mut self, received: &mut [u8], out: &mut [u8]) -> Result<(usize, usize), Error>;
}

/// What follows a step.
enum Step {
    More,
    /// There is no room for more.
    Full,
    /// No whole record is left.
    Idle,
}

/// The state of a connection beyond that of `rustls`.
pub struct Connection<E> {
    end: E,
    /// The error that has ended the connection.
    failed: Option<Error>,
    unread: Vec<u8>,
    /// Encrypted bytes of TLS itself, sent before the next ones.
    pending: Vec<u8>,
    /// Decrypted bytes that had no room, from `taken` on.
    plain: Vec<u8>,
    taken: usize,
}

impl<E> Connection<E> {
    pub fn new(end: E) -> Self {
        Self {
            end,
            failed: None,
            unread: Vec::new(),
            pending: Vec::new(),
            plain: Vec::new(),
            taken: 0,
        }
    }
}

impl<E: End> Records for Connection<E> {
    fn shake(&mut self, received: &[u8]) -> Result<bool, Error> {
        if self.unread.len() + received.len() > WAITING {
            let failed = Error::General(format!("a handshake of more than {WAITING} bytes"));
            self.failed = Some(failed.clone());
            return Err(failed);
        }
        self.unread.extend_from_slice(received);
        let mut incoming = std::mem::take(&mut self.unread);
        let (used, _) = self.process(&mut incoming, &mut [])?;
        self.unread = incoming.split_off(used);
        Ok(!self.end.state().is_handshaking())
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    fn unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unread)
    }

    fn certificate(&self) -> Option<Vec<u8>> {
        let shown = self.end.state().peer_certificates()?.first()?;
        Some(shown.to_vec())
    }

    fn encrypt(&mut self, buffers: &[&[u8]], out: &mut [u8]) -> Result<usize, Error> {
        self.check()?;
        if self.end.state().is_handshaking() {
            return Err(Error::HandshakeNotComplete);
        }
        loop {
            // Without received bytes: `process` leaves no part of a message of TLS itself behind.
            match self.end.process(&mut []).state? {
                ConnectionState::EncodeTlsData(state) => encode(state, &mut self.pending)?,
                ConnectionState::TransmitTlsData(state) => state.done(),
                ConnectionState::PeerClosed => {}
                ConnectionState::WriteTraffic(mut state) => {
                    let mut sealed = Sealed { out, used: 0 };
                    sealed.append(&self.pending)?;
                    self.pending.clear();
                    return sealed.encrypt(&mut state, buffers);
                }
                _ => return Err(Error::HandshakeNotComplete),
            }
        }
    }

    fn decrypt(&mut self, received: &mut [u8], out: &mut [u8]) -> Result<(usize, usize), Error> {
        if self.taken < self.plain.len() {
            let left = &self.plain[self.taken..];
            let count = left.len().min(out.len());
            out[..count].copy_from_slice(&left[..count]);
            self.taken += count;
            return Ok((0, count));
        }
        self.plain.clear();
        self.taken = 0;
        self.process(received, out)
    }
}

impl<E: End> Connection<E> {
    fn check(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Processes records until `out` is full or no whole one is left; returns the bytes used and written.
    fn process(&mut self, incoming: &mut [u8], out: &mut [u8]) -> Result<(usize, usize), Error> {
        self.check()?;
        let (mut used, mut written) = (0, 0);
        loop {
            let step = self.step(incoming, out, &mut used, &mut written);
            let left = &mut incoming[used..];
            let failed = match step {
                Ok(Step::More) => continue,
                Ok(Step::Idle) if !self.end.state().is_handshaking() && is_whole(left) => {
                    Error::General("a message of TLS itself in pieces".into())
                }
                Ok(_) => return Ok((used, written)),
                Err(error) => {
                    self.keep_alert(left);
                    error
                }
            };
            self.failed = Some(failed.clone());
            return Err(failed);
        }
    }

    /// Takes one step.
    fn step(
        &mut self,
        incoming: &mut [u8],
        out: &mut [u8],
        used: &mut usize,
        written: &mut usize,
    ) -> Result<Step, Error> {
        let UnbufferedStatus { discard, state, .. } = self.end.process(&mut incoming[*used..]);
        *used += discard;
        match state? {
            ConnectionState::ReadTraffic(mut state) => {
                while let Some(record) = state.next_record() {
                    let payload = record?.payload;
                    let count = payload.len().min(out.len() - *written);
                    out[*written..*written + count].copy_from_slice(&payload[..count]);
                    *written += count;
                    self.plain.extend_from_slice(&payload[count..]);
                }
                Ok(if *written < out.len() {
                    Step::More
                } else {
                    Step::Full
                })
            }
            ConnectionState::EncodeTlsData(state) => {
                encode(state, &mut self.pending)?;
                Ok(Step::More)
            }
            ConnectionState::TransmitTlsData(state) => {
                state.done();
                Ok(Step::More)
            }
            // The end of the stream is told by its frames, and the socket closes after it.
            ConnectionState::PeerClosed => Ok(Step::More),
            _ => Ok(Step::Idle),
        }
    }

    /// Keeps the alert about an error, to be sent.
    fn keep_alert(&mut self, left: &mut [u8]) {
        if let Ok(ConnectionState::EncodeTlsData(state)) = self.end.process(left).state {
            // Without room for it the other end sees the connection end, as it does anyhow.
            let _ = encode(state, &mut self.pending);
        }
    }
}

/// Tells whether bytes begin with a whole record. `rustls` keeps one that it has read when it ends inside a message
/// of TLS itself. No end of ours sends such messages in pieces.
fn is_whole(bytes: &[u8]) -> bool {
    match bytes {
        [_, _, _, high, low, rest @ ..] => rest.len() >= u16::from_be_bytes([*high, *low]).into(),
        _ => false,
    }
}

/// Returns at most `most` bytes of all buffers, joined, from byte `start` on, and their number.
pub fn part<'a>(buffers: &[&'a [u8]], mut start: usize, most: usize) -> (Vec<&'a [u8]>, usize) {
    let (mut taken, mut count) = (Vec::with_capacity(buffers.len()), 0);
    for buffer in buffers {
        let skipped = start.min(buffer.len());
        start -= skipped;
        let left = &buffer[skipped..];
        let next = &left[..left.len().min(most - count)];
        count += next.len();
        taken.push(next);
    }
    (taken, count)
}

/// Appends the encoding of TLS's own bytes.
fn encode<D>(mut state: EncodeTlsData<'_, D>, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    let size = match state.encode(&mut []) {
        Err(EncodeError::InsufficientSize(needed)) => needed.required_size,
        Err(error) => return Err(Error::General(error.to_string())),
        Ok(_) => 0,
    };
    out.resize(start + size, 0);
    match state.encode(&mut out[start..]) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::General(error.to_string())),
    }
}

/// Encrypted bytes at the front of the caller's memory.
struct Sealed<'o> {
    out: &'o mut [u8],
    used: usize,
}

impl Sealed<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let room = self.out.get_mut(self.used..self.used + bytes.len());
        let room = room.ok_or_else(|| Error::General("no room to encrypt".into()))?;
        room.copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }

    /// Encrypts the buffers, joined, in records of full size; returns the bytes used in all.
    fn encrypt<D>(
        mut self,
        state: &mut WriteTraffic<'_, D>,
        buffers: &[&[u8]],
    ) -> Result<usize, Error> {
        let mut joined: Vec<u8> = Vec::with_capacity(RECORD);
        for &buffer in buffers {
            let mut rest = buffer;
            if !joined.is_empty() || rest.len() < RECORD {
                let (head, tail) = rest.split_at(rest.len().min(RECORD - joined.len()));
                joined.extend_from_slice(head);
                rest = tail;
                if joined.len() == RECORD {
                    self.seal(state, &joined)?;
                    joined.clear();
                }
            }
            let (whole, tail) = rest.split_at(rest.len() - rest.len() % RECORD);
            self.seal(state, whole)?;
            joined.extend_from_slice(tail);
        }
        self.seal(state, &joined)?;
        Ok(self.used)
    }

    fn seal<D>(&mut self, state: &mut WriteTraffic<'_, D>, bytes: &[u8]) -> Result<(), Error> {
        if !bytes.is_empty() {
            let sealed = state.encrypt(bytes, &mut self.out[self.used..]);
            self.used += sealed.map_err(|error| match error {
                EncryptError::InsufficientSize(_) => Error::General("no room to encrypt".into()),
                EncryptError::EncryptExhausted => Error::EncryptError,
            })?;
        }
        Ok(())
    }
}
