//! The kernels: half-gates and their hash over many lanes, with the best instructions of the
//! machine.
//!
//! A lane is one AND gate of one instance. All kernels give the same bytes; a test compares them.

#[cfg(target_arch = "x86_64")]
use zeroize::Zeroize;

use super::block::Block;
use super::operands::{GATE, Keys, Wires};
use super::portable;
use super::runs::{Ands, Xors};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::instructions::Level;
#[cfg(target_arch = "x86_64")]
use crate::vectors::expand;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Aes,
    #[cfg(target_arch = "x86_64")]
    Vaes256,
    #[cfg(target_arch = "x86_64")]
    Vaes512,
}

/// A kernel that this machine can run: only `available` makes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel(Path);

/// Runs a function of the module of the kernel's instructions.
macro_rules! dispatch {
    ($kernel:expr, $function:ident ( $($argument:expr),* )) => {
        match $kernel.0 {
            Path::Portable => portable::$function($($argument),*),
            // SAFETY: `available` saw the features, and the caller's checks hold for the operands.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            Path::Aes => unsafe { x86::aes::$function($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            Path::Vaes256 => unsafe { x86::vaes256::$function($($argument),*) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            Path::Vaes512 => unsafe { x86::vaes512::$function($($argument),*) },
        }
    };
}

impl Kernel {
    /// Returns the kernels of this machine that its limit permits, the fastest last.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    pub fn available() -> Vec<Self> {
        let mut kernels = vec![Self(Path::Portable)];
        #[cfg(target_arch = "x86_64")]
        for (level, path) in [
            (Level::Aes, Path::Aes),
            (Level::Vaes256, Path::Vaes256),
            (Level::Vaes512, Path::Vaes512),
        ] {
            if level.permitted() && level.detected() {
                kernels.push(Self(path));
            }
        }
        kernels
    }

    /// Returns the name by which callers choose it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Path::Portable => Level::Portable.name(),
            #[cfg(target_arch = "x86_64")]
            Path::Aes => Level::Aes.name(),
            #[cfg(target_arch = "x86_64")]
            Path::Vaes256 => Level::Vaes256.name(),
            #[cfg(target_arch = "x86_64")]
            Path::Vaes512 => Level::Vaes512.name(),
        }
    }

    /// Garbles: computes zero label `out` from zero labels `a`, `b`, and the rows T_G and T_E of
    /// each lane.
    pub(super) fn garble(
        self,
        registers: &mut [Block],
        wires: Wires,
        keys: Keys<'_>,
        delta: &[Block],
        rows: [&mut [u8]; 2],
    ) {
        wires.check(registers.len(), &keys);
        assert!(delta.len() >= wires.lanes, "offsets");
        assert!(rows.iter().all(|row| row.len() == 16 * wires.lanes), "rows");
        dispatch!(self, garble(registers, wires, keys, delta, rows));
    }

    /// Evaluates: computes active label `out` from active labels `a`, `b` and the rows.
    pub(super) fn evaluate(
        self,
        registers: &mut [Block],
        wires: Wires,
        keys: Keys<'_>,
        rows: [&[u8]; 2],
    ) {
        wires.check(registers.len(), &keys);
        assert!(rows.iter().all(|row| row.len() == 16 * wires.lanes), "rows");
        dispatch!(self, evaluate(registers, wires, keys, rows));
    }

    /// `out = a ^ b` in every lane.
    pub(super) fn xor(self, registers: &mut [Block], wires: Wires) {
        wires.check(registers.len(), &Keys::Shared([0; 2]));
        dispatch!(self, xor(registers, wires));
    }

    /// Garbles gates of one instance; the table has T_G and T_E of each gate side by side.
    pub(super) fn garble_run(
        self,
        registers: &mut [Block],
        run: Ands<'_>,
        delta: Block,
        table: &mut [u8],
    ) {
        assert!(run.bound() <= registers.len(), "operands");
        assert!(table.len() == GATE * run.gates().len(), "table");
        dispatch!(self, garble_run(registers, run, delta, table));
    }

    /// Evaluates gates of one instance, as `garble_run` garbled them.
    pub(super) fn evaluate_run(self, registers: &mut [Block], run: Ands<'_>, table: &[u8]) {
        assert!(run.bound() <= registers.len(), "operands");
        assert!(table.len() == GATE * run.gates().len(), "table");
        dispatch!(self, evaluate_run(registers, run, table));
    }

    /// Computes XOR gates of one instance.
    pub(super) fn xor_run(self, registers: &mut [Block], run: Xors<'_>) {
        assert!(run.bound() <= registers.len(), "operands");
        dispatch!(self, xor_run(registers, run));
    }

    /// Replaces the labels of each lane, one of each of `labels`, by their hashes under the lane's first key.
    pub(crate) fn hash<const H: usize>(self, keys: Keys<'_>, labels: [&mut [Block]; H]) {
        let wires = Wires {
            a: 0,
            b: 0,
            out: 0,
            lanes: labels.first().map_or(0, |labels| labels.len()),
        };
        for labels in &labels {
            wires.check(labels.len(), &keys);
        }
        dispatch!(self, hash(keys, labels, wires.lanes));
    }

    /// Returns AES-128 under a secret key.
    pub(crate) fn cipher(self, key: Block) -> Cipher {
        match self.0 {
            Path::Portable => Cipher::Portable(Box::new(portable::expand(key))),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `available` saw the features.
            #[allow(unsafe_code)]
            _ => Cipher::Schedule(unsafe { expand(key) }),
        }
    }

    /// Encrypts block by block, under a cipher that this kernel made.
    pub(crate) fn encrypt(self, cipher: &Cipher, blocks: &mut [Block]) {
        match (self.0, cipher) {
            (_, Cipher::Portable(cipher)) => portable::encrypt(cipher, blocks),
            #[cfg(target_arch = "x86_64")]
            (path, Cipher::Schedule(schedule)) => {
                // SAFETY: only a kernel with AES instructions makes a schedule; `available` saw the rest.
                #[allow(unsafe_code)]
                unsafe {
                    match path {
                        Path::Vaes512 => x86::vaes512::encrypt(schedule, blocks),
                        Path::Vaes256 => x86::vaes256::encrypt(schedule, blocks),
                        _ => x86::aes::encrypt(schedule, blocks),
                    }
                }
            }
        }
    }
}

/// AES-128 with its key schedule, which is overwritten when dropped.
pub enum Cipher {
    Portable(Box<aes::Aes128Enc>),
    #[cfg(target_arch = "x86_64")]
    Schedule([Block; 11]),
}

impl Drop for Cipher {
    fn drop(&mut self) {
        match self {
            // It does so itself.
            Self::Portable(_) => {}
            #[cfg(target_arch = "x86_64")]
            Self::Schedule(schedule) => schedule.zeroize(),
        }
    }
}
